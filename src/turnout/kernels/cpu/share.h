// How a call's work is cut up between threads: by cost, the same way every time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace turnout {

inline std::int64_t ceil_divide(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// The units of work of one thread: all parts' units, each as long as its cost, stand in a row cut into equal lengths.
class Share {
  public:
    Share(std::int64_t total, int thread, int threads) : total_(total), thread_(thread), threads_(threads) {}

    // The next part has `units` units of `cost` each: those from first() to last() are this thread's.
    void advance(std::int64_t units, std::int64_t cost) {
        first_ = units_before(total_ * thread_ / threads_, units, cost);
        last_ = units_before(total_ * (thread_ + 1) / threads_, units, cost);
        position_ += units * cost;
    }
    std::int64_t first() const { return first_; }
    std::int64_t last() const { return last_; }

  private:
    // Units that start before `end`.
    std::int64_t units_before(std::int64_t end, std::int64_t units, std::int64_t cost) const {
        return end <= position_ ? 0 : std::min(units, ceil_divide(end - position_, cost));
    }

    std::int64_t total_, position_ = 0, first_ = 0, last_ = 0;
    int thread_, threads_;
};

}  // namespace turnout
