// A thread's share of a linear, and what it asks memory for meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace turnout {

// Lines of 64 bytes that follow each other.
struct Lines {
    const char* first;
    std::int64_t count;
};

// What will be read after a linear. Its arithmetic leaves the memory idle for part of the time; so every block of rows
// asks for some lines of these.
class Ahead {
  public:
    void add(const void* first, std::int64_t bytes) {
        const char* start = static_cast<const char*>(first);
        if (!ranges_.empty() && ranges_.back().first + ranges_.back().count * 64 == start)
            ranges_.back().count += bytes / 64;
        else if (bytes >= 64)
            ranges_.push_back({start, bytes / 64});
    }

    // The next lines, at most `count` of them; when none is left, one that does no harm.
    Lines take(std::int64_t count) {
        if (at_ == ranges_.size()) return {reinterpret_cast<const char*>(this), 0};
        Lines& range = ranges_[at_];
        const Lines taken{range.first, std::min(count, range.count)};
        range.first += taken.count * 64;
        range.count -= taken.count;
        if (range.count == 0) ++at_;
        return taken;
    }

  private:
    std::vector<Lines> ranges_;
    std::size_t at_ = 0;
};

// The part of `linear` that thread number `thread` of `threads` computes.
void linear_share(const Linear& call, int thread, int threads, Ahead& ahead);

}  // namespace turnout
