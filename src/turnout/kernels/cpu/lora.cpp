// Adapters in two steps, shrink and expand, with all adapters and targets of a call in each; one barrier in between.
// The linear that they go on top of comes before the barrier, and has their weights fetched meanwhile.
//
// A decode step reads every adapter once and does little with it, so everything is read in order from where it lies.
// Every sum runs in an order that depends on the matrices' sizes alone, so that a row's result does not depend on
// the rows beside it.

#include <omp.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "gemm.h"
#include "kernels.h"
#include "share.h"
#include "simd.h"

namespace turnout {
namespace {

constexpr std::int64_t kRanks = 4;     // ranks that shrink together
constexpr std::int64_t kOutputs = 32;  // outputs that expand together: two panels of 16
constexpr std::int64_t kRows = 64;     // rows that one task takes on
constexpr std::int64_t kPanel = 16;    // outputs in one register
constexpr std::size_t kAhead = 4;      // tasks; rows of b are read by turns, which no hardware prefetcher follows
constexpr std::int64_t kOwnCost = 8;   // reading weights costs about as much as using them for this many rows

// One piece of a step: a few ranks or outputs of a part, for some of its rows. Its weights start at `weights`.
struct Task {
    const LoraPart* part;
    float* shrunk;  // of the part, [rows, rank]
    const bfloat16* weights;
    std::int64_t offset, first_row, last_row;  // offset: the first rank or output
};

// Shrink or expand, over all parts.
struct Step {
    bool shrink;
    std::int64_t inputs;

    std::int64_t length(const LoraPart& part) const { return shrink ? part.rank : part.outputs; }
    std::int64_t width(const LoraPart& part) const { return shrink ? inputs : part.rank; }
    std::int64_t piece() const { return shrink ? kRanks : kOutputs; }

    std::int64_t tasks(const LoraPart& part) const {
        return ceil_divide(length(part), piece()) * ceil_divide(part.rows, kRows);
    }
    std::int64_t cost(const LoraPart& part) const {
        return piece() * width(part) * (kOwnCost + std::min(part.rows, kRows));
    }
    Task task(const LoraPart& part, float* shrunk, std::int64_t index) const {
        const std::int64_t pieces = ceil_divide(length(part), piece());
        const std::int64_t offset = index % pieces * piece(), row = index / pieces * kRows;
        const bfloat16* weights = (shrink ? part.a : part.b) + offset * width(part);
        return {&part, shrunk, weights, offset, row, std::min(row + kRows, part.rows)};
    }
};

// The tasks of one thread.
std::vector<Task> tasks_of(const Step& step, const LoraParts& parts, float* shrunk, int thread,
                           int threads) {
    std::int64_t total = 0;
    for (const LoraPart& part : parts) total += step.tasks(part) * step.cost(part);
    Share share(total, thread, threads);
    std::vector<Task> tasks;
    tasks.reserve(64);
    for (const LoraPart& part : parts) {
        share.advance(step.tasks(part), step.cost(part));
        for (std::int64_t i = share.first(); i < share.last(); ++i) tasks.push_back(step.task(part, shrunk, i));
        shrunk += part.rows * part.rank;
    }
    return tasks;
}

void prefetch(const bfloat16* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 32) __builtin_prefetch(from + i);
}

// shrunk[row, rank] = scale * x[row] . a[rank] for one row and the task's ranks. Asks for those `ahead` on the way.
template <int RANKS>
TURNOUT_AVX512 void shrink_row(const Task& task, std::int64_t inputs, std::int64_t row, const bfloat16* ahead) {
    const bfloat16* x = task.part->x + row * inputs;
    __m512 sums[RANKS];
    for (int r = 0; r < RANKS; ++r) sums[r] = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < inputs; i += 32) {
        const __mmask32 lanes = first_lanes_of_32(inputs - i);
        const __m512bh values = (__m512bh)_mm512_maskz_loadu_epi16(lanes, x + i);
        for (int r = 0; r < RANKS; ++r) {
            __builtin_prefetch(ahead + r * inputs + i);
            const __m512i weights = _mm512_maskz_loadu_epi16(lanes, task.weights + r * inputs + i);
            sums[r] = _mm512_dpbf16_ps(sums[r], values, (__m512bh)weights);
        }
    }
    float* shrunk = task.shrunk + row * task.part->rank + task.offset;
    for (int r = 0; r < RANKS; ++r) shrunk[r] = task.part->scale * _mm512_reduce_add_ps(sums[r]);
}

void shrink(const Task& task, std::int64_t inputs, const bfloat16* ahead) {
    for (std::int64_t row = task.first_row; row < task.last_row; ++row) {
        switch (task.part->rank - task.offset) {
            case 1: shrink_row<1>(task, inputs, row, ahead); break;
            case 2: shrink_row<2>(task, inputs, row, ahead); break;
            case 3: shrink_row<3>(task, inputs, row, ahead); break;
            default: shrink_row<4>(task, inputs, row, ahead);
        }
        ahead = task.weights;  // at hand already
    }
}

// Up to 16 ranks of the 16 rows of b from `output` on, two ranks of every output side by side; zeros past the ends.
TURNOUT_INLINE void load_pairs(const LoraPart& part, std::int64_t output, std::int64_t rank, __m512i pairs[8]) {
    const __mmask16 lanes = first_lanes(part.rank - rank);
    const bfloat16* b = part.b + output * part.rank + rank;
    const std::int64_t outputs = part.outputs - output;
    if (outputs >= 16) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m256i low = _mm256_maskz_loadu_epi16(lanes, b + i * part.rank);
            const __m256i high = _mm256_maskz_loadu_epi16(lanes, b + (i + 8) * part.rank);
            pairs[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        }
    } else {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m256i low = _mm256_maskz_loadu_epi16(i < outputs ? lanes : 0, b + i * part.rank);
            const __m256i high = _mm256_maskz_loadu_epi16(i + 8 < outputs ? lanes : 0, b + (i + 8) * part.rank);
            pairs[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        }
    }
    transpose_halves(pairs);
}

TURNOUT_INLINE __m512 even_ranks(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }

TURNOUT_INLINE __m512 odd_ranks(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
}

// 16 rows of b as float32 [rank][16]. Writes whole multiples of 16 ranks.
TURNOUT_AVX512 void unpack_panel(const LoraPart& part, std::int64_t output, float* panel) {
    for (std::int64_t rank = 0; rank < part.rank; rank += 16) {
        __m512i pairs[8];
        load_pairs(part, output, rank, pairs);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            _mm512_storeu_ps(panel + (rank + 2 * i) * kPanel, even_ranks(pairs[i]));
            _mm512_storeu_ps(panel + (rank + 2 * i + 1) * kPanel, odd_ranks(pairs[i]));
        }
    }
}

TURNOUT_INLINE void add_to(bfloat16* y, __mmask16 lanes, const __m512 sums[2]) {
    store_bfloat16(y, lanes, _mm512_add_ps(load_bfloat16(y, lanes), _mm512_add_ps(sums[0], sums[1])));
}

// y += shrunk @ b.T for one row and 16 outputs, in the order of expand_rows, without a panel in between.
TURNOUT_AVX512 void expand_row(const LoraPart& part, const float* shrunk, std::int64_t output, bfloat16* y) {
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (std::int64_t rank = 0; rank < part.rank; rank += 16) {
        __m512i pairs[8];
        load_pairs(part, output, rank, pairs);
        const std::int64_t ranks = part.rank - rank;
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            if (2 * i >= ranks) break;
            sums[0] = _mm512_fmadd_ps(_mm512_set1_ps(shrunk[rank + 2 * i]), even_ranks(pairs[i]), sums[0]);
            if (2 * i + 1 >= ranks) break;
            sums[1] = _mm512_fmadd_ps(_mm512_set1_ps(shrunk[rank + 2 * i + 1]), odd_ranks(pairs[i]), sums[1]);
        }
    }
    add_to(y, first_lanes(part.outputs - output), sums);
}

// y += shrunk @ panel, for ROWS rows and 16 outputs; even and odd ranks add up side by side.
template <int ROWS>
TURNOUT_AVX512 void expand_rows(const LoraPart& part, const float* shrunk, const float* panel, bfloat16* y,
                                std::int64_t y_stride, __mmask16 lanes) {
    __m512 sums[ROWS][2];
    for (int i = 0; i < ROWS; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    const std::int64_t even_ranks = part.rank & ~1;
    for (std::int64_t rank = 0; rank < even_ranks; rank += 2) {
        const __m512 even = _mm512_loadu_ps(panel + rank * kPanel), odd = _mm512_loadu_ps(panel + (rank + 1) * kPanel);
        for (int i = 0; i < ROWS; ++i) {
            const float* factors = shrunk + i * part.rank + rank;
            sums[i][0] = _mm512_fmadd_ps(_mm512_set1_ps(factors[0]), even, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(_mm512_set1_ps(factors[1]), odd, sums[i][1]);
        }
    }
    for (int i = 0; i < ROWS; ++i) {
        if (part.rank % 2) {
            const __m512 factor = _mm512_set1_ps(shrunk[i * part.rank + even_ranks]);
            sums[i][0] = _mm512_fmadd_ps(factor, _mm512_loadu_ps(panel + even_ranks * kPanel), sums[i][0]);
        }
        add_to(y + i * y_stride, lanes, sums[i]);
    }
}

TURNOUT_AVX512 void expand(const Task& task, std::int64_t y_stride, float* panel, const bfloat16* ahead) {
    const LoraPart& part = *task.part;
    const std::int64_t end = std::min(task.offset + kOutputs, part.outputs);
    for (std::int64_t output = task.offset; output < end; output += kPanel) {
        if (ahead) prefetch(ahead + (output - task.offset) * part.rank, kPanel * part.rank);
        const float* shrunk = task.shrunk + task.first_row * part.rank;
        bfloat16* y = part.y + task.first_row * y_stride + output;
        std::int64_t rows = task.last_row - task.first_row;
        if (rows == 1) {
            expand_row(part, shrunk, output, y);
            continue;
        }
        unpack_panel(part, output, panel);
        const __mmask16 lanes = first_lanes(part.outputs - output);
        for (; rows >= 8; rows -= 8, shrunk += 8 * part.rank, y += 8 * y_stride)
            expand_rows<8>(part, shrunk, panel, y, y_stride, lanes);
        for (; rows > 0; --rows, shrunk += part.rank, y += y_stride)
            expand_rows<1>(part, shrunk, panel, y, y_stride, lanes);
    }
}

// The weights of some tasks, in their order, each matrix once.
void add_weights(Ahead& ahead, const std::vector<Task>& tasks, const Step& step) {
    for (const Task& task : tasks) {
        const std::int64_t length = std::min(step.piece(), step.length(*task.part) - task.offset);
        if (task.first_row == 0) ahead.add(task.weights, 2 * length * step.width(*task.part));
    }
}

}  // namespace

void adapted_linear(const Linear& base, const LoraParts& parts, std::int64_t inputs) {
    std::int64_t size = 0, largest = 0;
    for (const LoraPart& part : parts) {
        size += part.rows * part.rank;
        largest = std::max(largest, part.rank);
    }
    const std::unique_ptr<float[]> shrunk(new float[size]);
    const Step shrinking{true, inputs}, expanding{false, inputs};
#pragma omp parallel
    {
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const std::vector<Task> shrinks = tasks_of(shrinking, parts, shrunk.get(), thread, threads);
        const std::vector<Task> expands = tasks_of(expanding, parts, shrunk.get(), thread, threads);
        const std::unique_ptr<float[]> panel(new float[ceil_divide(largest, 16) * 16 * kPanel]);
        Ahead ahead;
        add_weights(ahead, shrinks, shrinking);
        add_weights(ahead, expands, expanding);
        linear_share(base, thread, threads, ahead);
        for (std::size_t i = 0; i < shrinks.size(); ++i)
            shrink(shrinks[i], inputs, shrinks[std::min(i + 1, shrinks.size() - 1)].weights);
        for (std::size_t i = 0; i < std::min(kAhead, expands.size()); ++i)
            prefetch(expands[i].weights, kOutputs * expands[i].part->rank);
#pragma omp barrier
        for (std::size_t i = 0; i < expands.size(); ++i) {
            const bfloat16* later = i + kAhead < expands.size() ? expands[i + kAhead].weights : nullptr;
            expand(expands[i], base.outputs, panel.get(), later);
        }
    }
}

}  // namespace turnout
