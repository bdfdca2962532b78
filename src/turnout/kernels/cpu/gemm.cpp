// Rows times packed weights. A panel is 32 outputs: two registers of float32 accumulators for each row of a block.
//
// Every output adds up its products in the order of the inputs, in one accumulator, so that a row's result does not
// depend on the block it is in.

#include <omp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gemm.h"
#include "kernels.h"
#include "simd.h"

namespace turnout {
namespace {

constexpr int kPanel = 32;
constexpr int kBlock = 12;                        // 24 accumulators, of 32 registers
constexpr std::int64_t kChunkBytes = 256 * 1024;  // rows that stay in the second-level cache
constexpr std::int64_t kUnpackRows = 48;          // from more rows on, unpacking int8 once beats unpacking in each block

// Pairs of inputs ahead at which weights are asked for: hardware prefetchers stop at the end of every page.
constexpr std::int64_t kAhead = 32;

void prefetch(const bfloat16* two_lines) {
    __builtin_prefetch(two_lines);
    __builtin_prefetch(two_lines + 32);
}

void prefetch(const std::int8_t* line) { __builtin_prefetch(line); }

// 16 outputs' weights for two inputs.
TURNOUT_INLINE __m512bh load_weights(const bfloat16* from) { return (__m512bh)_mm512_loadu_si512(from); }

// The same from int8, every value of which is exact in bfloat16.
TURNOUT_INLINE __m512bh load_weights(const std::int8_t* from) {
    const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from));
    const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(from + 16)));
    return _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}

// ROWS rows from `row` on, times the panel, whose weights are at `weights`; asks for `next` on the way.
template <int ROWS, typename Weight>
TURNOUT_AVX512 void multiply_block(const Linear& call, std::int64_t row, std::int64_t panel, const Weight* weights,
                                   Lines next) {
    const std::int64_t pairs = call.inputs / 2;
    const bfloat16* x = call.x + row * call.inputs;
    __m512 sums[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    for (std::int64_t p = 0; p < pairs; ++p) {
        prefetch(weights + (kAhead + p) * 2 * kPanel);
        __builtin_prefetch(next.first + std::min(p, next.count) * 64);
        const __m512bh low = load_weights(weights + p * 64), high = load_weights(weights + p * 64 + 32);
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
            if (call.scales) sum = _mm512_mul_ps(sum, _mm512_loadu_ps(call.scales + column));
            if (call.bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps(call.bias + column));
            const std::int64_t at = (row + r) * call.outputs + column;
            if (call.float_output)
                _mm512_mask_storeu_ps(static_cast<float*>(call.y) + at, lanes, sum);
            else
                store_bfloat16(static_cast<bfloat16*>(call.y) + at, lanes, sum);
        }
    }
}

template <typename Weight>
using Block = void (*)(const Linear&, std::int64_t, std::int64_t, const Weight*, Lines);

template <typename Weight, int... N>
constexpr Block<Weight> block_of(std::int64_t rows, std::integer_sequence<int, N...>) {
    constexpr Block<Weight> blocks[] = {multiply_block<N + 1, Weight>...};
    return blocks[rows - 1];
}

// The rows from `first` to `last`, times one panel.
template <typename Weight>
void multiply_rows(const Linear& call, std::int64_t first, std::int64_t last, std::int64_t panel,
                   const Weight* weights, Ahead& ahead) {
    const std::int64_t rows = last - first, blocks = (rows + kBlock - 1) / kBlock;
    for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t from = rows * b / blocks, to = rows * (b + 1) / blocks;
        block_of<Weight>(to - from, std::make_integer_sequence<int, kBlock>())(call, first + from, panel, weights,
                                                                                 ahead.take(call.inputs / 2));
    }
}

// Two inputs' weights of 16 outputs, where a register can be stored without touching a second line of the cache.
struct alignas(64) Line {
    bfloat16 weights[32];
};

TURNOUT_AVX512 void unpack(const std::int8_t* weights, std::int64_t count, bfloat16* to) {
    for (std::int64_t i = 0; i < count; i += 32) _mm512_storeu_si512(to + i, (__m512i)load_weights(weights + i));
}

// The panels from `first` to `last`: rows by chunks, so that they stay in cache while the panels pass by. Int8 panels
// that many blocks of rows will read are unpacked once.
void multiply_panels(const Linear& call, std::int64_t first, std::int64_t last, Ahead& ahead) {
    const std::int64_t chunk = std::max<std::int64_t>(kBlock, kChunkBytes / (2 * call.inputs) / kBlock * kBlock);
    const std::int64_t size = call.inputs * kPanel;
    const bool unpacks = call.scales && call.rows > kUnpackRows;
    const std::unique_ptr<Line[]> lines(unpacks ? new Line[size / 32] : nullptr);
    bfloat16* unpacked = unpacks ? lines[0].weights : nullptr;
    for (std::int64_t start = 0; start < call.rows; start += chunk) {
        const std::int64_t end = std::min(start + chunk, call.rows);
        for (std::int64_t panel = first; panel < last; ++panel) {
            if (!call.scales) {
                multiply_rows(call, start, end, panel, static_cast<const bfloat16*>(call.panels) + panel * size,
                              ahead);
                continue;
            }
            const std::int8_t* weights = static_cast<const std::int8_t*>(call.panels) + panel * size;
            if (unpacks) {
                unpack(weights, size, unpacked);
                multiply_rows<bfloat16>(call, start, end, panel, unpacked, ahead);
            } else {
                multiply_rows(call, start, end, panel, weights, ahead);
            }
        }
    }
}

}  // namespace

void linear_share(const Linear& call, int thread, int threads, Ahead& ahead) {
    const std::int64_t panels = (call.outputs + kPanel - 1) / kPanel;
    multiply_panels(call, panels * thread / threads, panels * (thread + 1) / threads, ahead);
}

void linear(const Linear& call) {
#pragma omp parallel
    {
        Ahead nothing;
        linear_share(call, omp_get_thread_num(), omp_get_num_threads(), nothing);
    }
}

}  // namespace turnout
