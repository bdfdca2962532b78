// Rows times packed weights. A panel is 32 outputs: two registers of float32 accumulators for each row of a block.
//
// Every output adds up its products in the order of the inputs, in one accumulator, so that a row's result does not
// depend on the block it is in.

#include <omp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels.h"

namespace turnout {
namespace {

constexpr int kPanel = 32;
constexpr int kBlock = 12;                        // 24 accumulators, of 32 registers
constexpr std::int64_t kChunkBytes = 256 * 1024;  // rows that stay in the second-level cache

// With a few rows the arithmetic takes long enough for the next panel to arrive meanwhile, if it is asked for; with
// fewer, memory alone sets the pace, and asking costs.
constexpr int kPrefetchRows = 4;

void prefetch(const bfloat16* two_lines) {
    __builtin_prefetch(two_lines);
    __builtin_prefetch(two_lines + 32);
}

template <int ROWS>
TURNOUT_AVX512 void multiply_block(const Linear& call, std::int64_t row, std::int64_t panel) {
    const std::int64_t pairs = call.inputs / 2;
    const bfloat16* x = call.x + row * call.inputs;
    const bfloat16* weights = call.panels + panel * pairs * 2 * kPanel;
    __m512 sums[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    for (std::int64_t p = 0; p < pairs; ++p) {
        if (ROWS >= kPrefetchRows) prefetch(weights + (pairs + p) * 2 * kPanel);
        const __m512bh low = (__m512bh)_mm512_loadu_si512(weights + p * 64);
        const __m512bh high = (__m512bh)_mm512_loadu_si512(weights + p * 64 + 32);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r) {
            const __m512bh both = broadcast_pair(x + r * call.inputs + 2 * p);
            sums[r][0] = _mm512_dpbf16_ps(sums[r][0], low, both);
            sums[r][1] = _mm512_dpbf16_ps(sums[r][1], high, both);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) {
        for (int half = 0; half < 2; ++half) {
            const std::int64_t column = panel * kPanel + 16 * half;
            const __mmask16 lanes = first_lanes(call.outputs - column);
            if (!lanes) continue;
            __m512 sum = sums[r][half];
            if (call.bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps(call.bias + column));
            const std::int64_t at = (row + r) * call.outputs + column;
            if (call.float_output)
                _mm512_mask_storeu_ps(static_cast<float*>(call.y) + at, lanes, sum);
            else
                store_bfloat16(static_cast<bfloat16*>(call.y) + at, lanes, sum);
        }
    }
}

using Block = void (*)(const Linear&, std::int64_t, std::int64_t);

template <int... N>
constexpr Block block_of(std::int64_t rows, std::integer_sequence<int, N...>) {
    constexpr Block blocks[] = {multiply_block<N + 1>...};
    return blocks[rows - 1];
}

// The panels from `first` to `last`: rows by chunks, so that they stay in cache while the panels pass by.
void multiply_panels(const Linear& call, std::int64_t first, std::int64_t last) {
    const std::int64_t chunk = std::max<std::int64_t>(kBlock, kChunkBytes / (2 * call.inputs) / kBlock * kBlock);
    for (std::int64_t start = 0; start < call.rows; start += chunk) {
        const std::int64_t rows = std::min(chunk, call.rows - start);
        const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
        for (std::int64_t panel = first; panel < last; ++panel) {
            for (std::int64_t b = 0; b < blocks; ++b) {
                const std::int64_t from = rows * b / blocks, to = rows * (b + 1) / blocks;
                const Block multiply = block_of(to - from, std::make_integer_sequence<int, kBlock>());
                multiply(call, start + from, panel);
            }
        }
    }
}

}  // namespace

void linear(const Linear& call) {
    const std::int64_t panels = (call.outputs + kPanel - 1) / kPanel;
#pragma omp parallel
    {
        const std::int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        multiply_panels(call, panels * thread / threads, panels * (thread + 1) / threads);
    }
}

}  // namespace turnout
