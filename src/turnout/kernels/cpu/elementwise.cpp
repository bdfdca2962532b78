// One pass over rows: normalization, rotation, gating, and the copy into the cache. Short ones stay on one thread.

#include <cmath>
#include <cstring>

#include "kernels.h"
#include "simd.h"

namespace turnout {
namespace {

constexpr std::int64_t kParallelFrom = 64 * 1024;  // elements for which waking the other threads pays

TURNOUT_AVX512 void norm_row(const bfloat16* x, const bfloat16* weight, bfloat16* y, std::int64_t width, float eps) {
    __m512 squares = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < width; i += 16) {
        const __m512 values = load_bfloat16(x + i, first_lanes(width - i));
        squares = _mm512_fmadd_ps(values, values, squares);
    }
    const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(width);
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(mean + eps));
    for (std::int64_t i = 0; i < width; i += 16) {
        const __mmask16 lanes = first_lanes(width - i);
        const __m512 values = _mm512_mul_ps(load_bfloat16(x + i, lanes), factor);
        store_bfloat16(y + i, lanes, _mm512_mul_ps(values, load_bfloat16(weight + i, lanes)));
    }
}

TURNOUT_AVX512 void add_row(const bfloat16* x, const bfloat16* y, bfloat16* sum, std::int64_t width) {
    for (std::int64_t i = 0; i < width; i += 16) {
        const __mmask16 lanes = first_lanes(width - i);
        store_bfloat16(sum + i, lanes, _mm512_add_ps(load_bfloat16(x + i, lanes), load_bfloat16(y + i, lanes)));
    }
}

TURNOUT_AVX512 void rotate_row(const bfloat16* x, const float* cosines, const float* sines, bfloat16* y,
                               std::int64_t heads, std::int64_t half) {
    for (std::int64_t i = 0; i < half; i += 16) {
        const __mmask16 lanes = first_lanes(half - i);
        const __m512 cosine = _mm512_maskz_loadu_ps(lanes, cosines + i), sine = _mm512_maskz_loadu_ps(lanes, sines + i);
        for (std::int64_t at = i; at < heads * 2 * half; at += 2 * half) {
            const __m512 first = load_bfloat16(x + at, lanes), second = load_bfloat16(x + at + half, lanes);
            store_bfloat16(y + at, lanes, _mm512_fmsub_ps(first, cosine, _mm512_mul_ps(second, sine)));
            store_bfloat16(y + at + half, lanes, _mm512_fmadd_ps(second, cosine, _mm512_mul_ps(first, sine)));
        }
    }
}

TURNOUT_AVX512 void gate_row(const bfloat16* gate_up, bfloat16* y, std::int64_t width) {
    const __m512 one = _mm512_set1_ps(1.0f), minus_log2e = _mm512_set1_ps(-kLog2E);
    for (std::int64_t i = 0; i < width; i += 16) {
        const __mmask16 lanes = first_lanes(width - i);
        const __m512 gate = load_bfloat16(gate_up + i, lanes), up = load_bfloat16(gate_up + width + i, lanes);
        const __m512 divisor = _mm512_add_ps(one, exp2(_mm512_mul_ps(gate, minus_log2e)));
        store_bfloat16(y + i, lanes, _mm512_mul_ps(_mm512_div_ps(gate, divisor), up));
    }
}

}  // namespace

void rms_norm(const bfloat16* x, const bfloat16* delta, const bfloat16* weight, bfloat16* sum, bfloat16* y,
              std::int64_t rows, std::int64_t width, float eps) {
#pragma omp parallel for if (rows * width >= kParallelFrom)
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t at = row * width;
        if (delta) add_row(x + at, delta + at, sum + at, width);
        norm_row(delta ? sum + at : x + at, weight, y + at, width, eps);
    }
}

void rope(const bfloat16* x, std::int64_t stride, const float* cosines, const float* sines, bfloat16* y,
          std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
    const std::int64_t half = head_dim / 2;
#pragma omp parallel for if (rows * heads * head_dim >= kParallelFrom)
    for (std::int64_t row = 0; row < rows; ++row)
        rotate_row(x + row * stride, cosines + row * half, sines + row * half, y + row * heads * head_dim, heads, half);
}

void silu_mul(const bfloat16* gate_up, bfloat16* y, std::int64_t rows, std::int64_t width) {
#pragma omp parallel for if (rows * width >= kParallelFrom)
    for (std::int64_t row = 0; row < rows; ++row) gate_row(gate_up + row * 2 * width, y + row * width, width);
}

void write_rows(const bfloat16* values, std::int64_t stride, bfloat16* cache, const std::int64_t* slots,
                std::int64_t rows, std::int64_t width) {
    for (std::int64_t row = 0; row < rows; ++row)
        std::memcpy(cache + slots[row] * width, values + row * stride, width * sizeof(bfloat16));
}

}  // namespace turnout
