// Rows times packed weights, as in gemm.cpp, but in float32: every output adds up its products in the order of the
// inputs, in one accumulator, so that a row's result does not depend on the block it is in.
#pragma once

#include <omp.h>

#include "vector.h"

namespace turnout::TURNOUT_SET {
namespace {

constexpr int kPanel = 32;
constexpr int kSums = kRegisters * 3 / 4;    // accumulators; weights and rows need the other registers
constexpr int kBlock = kSums / 2;            // rows
constexpr int64_t kChunkBytes = 256 * 1024;  // of unpacked rows, which stay in the second-level cache
constexpr int64_t kAhead = 32;               // pairs of inputs ahead at which weights are asked for, as in gemm.cpp

// How many vectors of a panel are multiplied together with this many rows: the whole panel, if registers suffice.
constexpr int vectors_of(int rows) {
    int vectors = kPanel / kLanes;
    while (rows * vectors > kSums) vectors /= 2;
    return vectors;
}

struct Pair {
    Floats even, odd;
};

// Two inputs' weights for as many outputs as there are lanes.
TURNOUT_INLINE Pair load_pair(const bfloat16* from) {
    const Bits pairs = load<Bits>(from);
    return {evens(pairs), odds(pairs)};
}

TURNOUT_INLINE Pair load_pair(const std::int8_t* from) {
    const Ints pairs = __builtin_convertvector(load<Shorts>(from), Ints);
    const Ints even = (Ints)((Bits)pairs << 24) >> 24, odd = pairs >> 8;
    return {__builtin_convertvector(even, Floats), __builtin_convertvector(odd, Floats)};
}

// Where a block of rows stands: `x` are its unpacked rows, `row` is the first.
struct Block {
    const float* x;
    int64_t row;
};

TURNOUT_INLINE void finish(const Linear& call, int64_t row, int64_t column, Floats sum) {
    const int64_t count = call.outputs - column;
    if (count <= 0) return;
    if (call.scales) sum = sum * load<Floats>(call.scales + column);
    if (call.bias) sum = sum + load<Floats>(call.bias + column);
    const int64_t at = row * call.outputs + column;
    if (call.float_output)
        store_floats(static_cast<float*>(call.y) + at, count, sum);
    else
        store_bfloat16(static_cast<bfloat16*>(call.y) + at, count, sum);
}

// ROWS rows times VECTORS vectors of the panel's outputs, from `offset` on.
template <int ROWS, int VECTORS, typename Weight>
TURNOUT_INLINE void multiply(const Linear& call, const Block& block, int64_t panel, int offset, const Weight* weights) {
    Floats sums[ROWS][VECTORS] = {};
    for (int64_t input = 0; input < call.inputs; input += 2) {
        const Weight* from = weights + input * kPanel + 2 * offset;
        __builtin_prefetch(from + 2 * kAhead * kPanel);
        if (sizeof(Weight) == 2 && VECTORS * kLanes == kPanel) __builtin_prefetch(from + (2 * kAhead + 1) * kPanel);
        Pair pairs[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) pairs[v] = load_pair(from + 2 * v * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r) {
            const Floats factor = splat(block.x[r * call.inputs + input]);
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) sums[r][v] = multiply_add(factor, pairs[v].even, sums[r][v]);
        }
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r) {
            const Floats factor = splat(block.x[r * call.inputs + input + 1]);
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) sums[r][v] = multiply_add(factor, pairs[v].odd, sums[r][v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v)
            finish(call, block.row + r, panel * kPanel + offset + v * kLanes, sums[r][v]);
}

template <int ROWS, typename Weight>
void multiply_block(const Linear& call, const Block& block, int64_t panel, const Weight* weights) {
    constexpr int vectors = vectors_of(ROWS);
    for (int offset = 0; offset < kPanel; offset += vectors * kLanes)
        multiply<ROWS, vectors>(call, block, panel, offset, weights);
}

template <typename Weight>
using Multiply = void (*)(const Linear&, const Block&, int64_t, const Weight*);

template <typename Weight, int... N>
Multiply<Weight> multiply_of(int64_t rows, std::integer_sequence<int, N...>) {
    static constexpr Multiply<Weight> blocks[] = {multiply_block<N + 1, Weight>...};
    return blocks[rows - 1];
}

// `rows` unpacked rows, which start at `first`, times the panels of one thread.
template <typename Weight>
void multiply_panels(const Linear& call, const float* x, int64_t first, int64_t rows, int64_t panel, int64_t end) {
    const int64_t blocks = pieces(rows, kBlock);
    for (; panel < end; ++panel) {
        const Weight* weights = static_cast<const Weight*>(call.panels) + panel * call.inputs * kPanel;
        for (int64_t b = 0; b < blocks; ++b) {
            const int64_t from = rows * b / blocks, to = rows * (b + 1) / blocks;
            multiply_of<Weight>(to - from, std::make_integer_sequence<int, kBlock>())(
                call, {x + from * call.inputs, first + from}, panel, weights);
        }
    }
}

void unpack(const bfloat16* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kLanes)
        store_floats(to + i, count - i, load_bfloat16(from + i, count - i));
}

void linear(const Linear& call) {
    const int64_t panels = pieces(call.outputs, kPanel);
    const int64_t chunk = larger(kBlock, kChunkBytes / 4 / call.inputs / kBlock * kBlock);
#pragma omp parallel
    {
        const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const int64_t panel = panels * thread / threads, end = panels * (thread + 1) / threads;
        const Buffer<float> x(panel < end ? smaller(chunk, call.rows) * call.inputs : 0);
        for (int64_t first = 0; first < call.rows && panel < end; first += chunk) {
            const int64_t rows = smaller(chunk, call.rows - first);
            unpack(call.x + first * call.inputs, rows * call.inputs, x.get());
            if (call.scales)
                multiply_panels<std::int8_t>(call, x.get(), first, rows, panel, end);
            else
                multiply_panels<bfloat16>(call, x.get(), first, rows, panel, end);
        }
    }
}

}  // namespace
}  // namespace turnout::TURNOUT_SET
