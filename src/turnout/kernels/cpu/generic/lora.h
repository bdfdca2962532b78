// Adapters in two steps, shrink and expand, as in lora.cpp. Every sum runs in an order that depends on the matrices'
// sizes alone, so that a row's result does not depend on the rows beside it.
#pragma once

#include <omp.h>

#include "linear.h"
#include "vector.h"

namespace turnout::TURNOUT_SET {
namespace {

constexpr int64_t kTaskRows = 32;      // rows that one task takes on
constexpr int64_t kTaskRanks = 8;      // ranks that one task shrinks
constexpr int64_t kTaskOutputs = 128;  // outputs that one task expands: a multiple of the lanes
constexpr int kRanks = 4;              // ranks that share a row's values
constexpr int kExpandRows = 4;         // rows that share a panel's values

// A few ranks (to shrink) or outputs (to expand) of a part, for some of its rows.
struct Task {
    const LoraPart* part;
    float* shrunk;  // of the part, [rows, rank]
    int64_t first_row, last_row, first, last;
};

// Cuts one part into tasks; `length` is its number of ranks or outputs. Returns where the next part's start.
Task* cut(const LoraPart& part, float* shrunk, int64_t length, int64_t piece, Task* to) {
    for (int64_t row = 0; row < part.rows; row += kTaskRows)
        for (int64_t first = 0; first < length; first += piece)
            *to++ = {&part, shrunk, row, smaller(row + kTaskRows, part.rows), first, smaller(first + piece, length)};
    return to;
}

// shrunk[row, rank] = scale * x[row] . a[rank] for RANKS ranks.
template <int RANKS>
TURNOUT_INLINE void shrink_ranks(const LoraPart& part, int64_t inputs, const bfloat16* x, int64_t rank, float* shrunk) {
    const bfloat16* a = part.a + rank * inputs;
    Floats sums[RANKS] = {};
    for (int64_t i = 0; i < inputs; i += kLanes) {
        const Floats values = load_bfloat16(x + i, inputs - i);
#pragma GCC unroll 4
        for (int r = 0; r < RANKS; ++r)
            sums[r] = multiply_add(values, load_bfloat16(a + r * inputs + i, inputs - i), sums[r]);
    }
    for (int r = 0; r < RANKS; ++r) shrunk[rank + r] = part.scale * sum_of(sums[r]);
}

void shrink(const Task& task, int64_t inputs) {
    const LoraPart& part = *task.part;
    for (int64_t row = task.first_row; row < task.last_row; ++row) {
        const bfloat16* x = part.x + row * inputs;
        float* shrunk = task.shrunk + row * part.rank;
        int64_t rank = task.first;
        for (; rank + kRanks <= task.last; rank += kRanks) shrink_ranks<kRanks>(part, inputs, x, rank, shrunk);
        for (; rank < task.last; ++rank) shrink_ranks<1>(part, inputs, x, rank, shrunk);
    }
}

// As many rows of b as there are lanes, from `output` on, as float32 [rank][lanes]; writes whole multiples of two
// ranks for each lane.
void unpack_outputs(const LoraPart& part, int64_t output, float* panel) {
    for (int64_t rank = 0; rank < part.rank; rank += 2 * kLanes) {
        Bits pairs[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            const bool exists = output + i < part.outputs;
            pairs[i] = load_first<Bits>(part.b + (output + i) * part.rank + rank, exists ? part.rank - rank : 0);
        }
        transpose(pairs);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            store(panel + (rank + 2 * i) * kLanes, evens(pairs[i]));
            store(panel + (rank + 2 * i + 1) * kLanes, odds(pairs[i]));
        }
    }
}

// y += shrunk @ panel for ROWS rows; even and odd ranks add up side by side.
template <int ROWS>
TURNOUT_INLINE void expand_rows(const LoraPart& part, const float* shrunk, const float* panel, bfloat16* y,
                                int64_t y_stride, int64_t count) {
    Floats even[ROWS] = {}, odd[ROWS] = {};
    int64_t rank = 0;
    for (; rank + 2 <= part.rank; rank += 2) {
        const Floats first = load<Floats>(panel + rank * kLanes), second = load<Floats>(panel + (rank + 1) * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) {
            const float* factors = shrunk + r * part.rank + rank;
            even[r] = multiply_add(splat(factors[0]), first, even[r]);
            odd[r] = multiply_add(splat(factors[1]), second, odd[r]);
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        if (rank < part.rank)
            even[r] = multiply_add(splat(shrunk[r * part.rank + rank]), load<Floats>(panel + rank * kLanes), even[r]);
        bfloat16* to = y + r * y_stride;
        store_bfloat16(to, count, load_bfloat16(to, count) + (even[r] + odd[r]));
    }
}

void expand(const Task& task, int64_t y_stride, float* panel) {
    const LoraPart& part = *task.part;
    for (int64_t output = task.first; output < task.last; output += kLanes) {
        unpack_outputs(part, output, panel);
        const int64_t count = part.outputs - output;
        int64_t row = task.first_row;
        for (; row + kExpandRows <= task.last_row; row += kExpandRows)
            expand_rows<kExpandRows>(part, task.shrunk + row * part.rank, panel, part.y + row * y_stride + output,
                                     y_stride, count);
        for (; row < task.last_row; ++row)
            expand_rows<1>(part, task.shrunk + row * part.rank, panel, part.y + row * y_stride + output, y_stride,
                           count);
    }
}

void add_lora(const LoraParts& parts, int64_t inputs, int64_t y_stride) {
    int64_t size = 0, largest = 0, shrinks = 0, expands = 0;
    for (const LoraPart& part : parts) {
        size += part.rows * part.rank;
        largest = larger(largest, part.rank);
        shrinks += pieces(part.rows, kTaskRows) * pieces(part.rank, kTaskRanks);
        expands += pieces(part.rows, kTaskRows) * pieces(part.outputs, kTaskOutputs);
    }
    const Buffer<float> shrunk(size);
    const Buffer<Task> tasks(shrinks + expands);
    Task *next_shrink = tasks.get(), *next_expand = tasks.get() + shrinks;
    float* own = shrunk.get();
    for (const LoraPart& part : parts) {
        next_shrink = cut(part, own, part.rank, kTaskRanks, next_shrink);
        next_expand = cut(part, own, part.outputs, kTaskOutputs, next_expand);
        own += part.rows * part.rank;
    }
#pragma omp parallel
    {
        const Buffer<float> panel(pieces(largest, 2 * kLanes) * 2 * kLanes * kLanes);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < shrinks; ++i) shrink(tasks[i], inputs);
#pragma omp for schedule(dynamic) nowait
        for (int64_t i = shrinks; i < shrinks + expands; ++i) expand(tasks[i], y_stride, panel.get());
    }
}

void adapted_linear(const Linear& base, const LoraParts& parts, int64_t inputs) {
    TURNOUT_SET::linear(base);
    if (parts.count > 0) add_lora(parts, inputs, base.outputs);
}

}  // namespace
}  // namespace turnout::TURNOUT_SET
