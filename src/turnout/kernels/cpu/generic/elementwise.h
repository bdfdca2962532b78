// One pass over rows, as in elementwise.cpp.
#pragma once

#include "vector.h"

namespace turnout::TURNOUT_SET {
namespace {

constexpr int64_t kParallelFrom = 64 * 1024;  // elements for which waking the other threads pays

TURNOUT_INLINE Floats load_angles(const float* from, int64_t count) {
    if (count >= kLanes) return load<Floats>(from);
    Floats values = {};
    __builtin_memcpy(&values, from, count * sizeof(float));
    return values;
}

void norm_row(const bfloat16* x, const bfloat16* weight, bfloat16* y, int64_t width, float eps) {
    Floats squares = {};
    for (int64_t i = 0; i < width; i += kLanes) {
        const Floats values = load_bfloat16(x + i, width - i);
        squares = multiply_add(values, values, squares);
    }
    const float mean = sum_of(squares) / static_cast<float>(width);
    const float factor = 1.0f / __builtin_sqrtf(mean + eps);
    for (int64_t i = 0; i < width; i += kLanes) {
        const int64_t count = width - i;
        store_bfloat16(y + i, count, load_bfloat16(x + i, count) * factor * load_bfloat16(weight + i, count));
    }
}

void add_row(const bfloat16* x, const bfloat16* y, bfloat16* sum, int64_t width) {
    for (int64_t i = 0; i < width; i += kLanes) {
        const int64_t count = width - i;
        store_bfloat16(sum + i, count, load_bfloat16(x + i, count) + load_bfloat16(y + i, count));
    }
}

void rotate_row(const bfloat16* x, const float* cosines, const float* sines, bfloat16* y, int64_t heads,
                int64_t half) {
    for (int64_t i = 0; i < half; i += kLanes) {
        const int64_t count = half - i;
        const Floats cosine = load_angles(cosines + i, count), sine = load_angles(sines + i, count);
        for (int64_t at = i; at < heads * 2 * half; at += 2 * half) {
            const Floats first = load_bfloat16(x + at, count), second = load_bfloat16(x + at + half, count);
            store_bfloat16(y + at, count, multiply_add(first, cosine, -(second * sine)));
            store_bfloat16(y + at + half, count, multiply_add(second, cosine, first * sine));
        }
    }
}

void gate_row(const bfloat16* gate_up, bfloat16* y, int64_t width) {
    for (int64_t i = 0; i < width; i += kLanes) {
        const int64_t count = width - i;
        const Floats gate = load_bfloat16(gate_up + i, count), up = load_bfloat16(gate_up + width + i, count);
        store_bfloat16(y + i, count, gate / (1.0f + exp2(gate * -kLog2E)) * up);
    }
}

void rms_norm(const bfloat16* x, const bfloat16* delta, const bfloat16* weight, bfloat16* sum, bfloat16* y,
              int64_t rows, int64_t width, float eps) {
#pragma omp parallel for if (rows * width >= kParallelFrom)
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row * width;
        if (delta) add_row(x + at, delta + at, sum + at, width);
        norm_row(delta ? sum + at : x + at, weight, y + at, width, eps);
    }
}

void rope(const bfloat16* x, int64_t stride, const float* cosines, const float* sines, bfloat16* y, int64_t rows,
          int64_t heads, int64_t head_dim) {
    const int64_t half = head_dim / 2;
#pragma omp parallel for if (rows * heads * head_dim >= kParallelFrom)
    for (int64_t row = 0; row < rows; ++row)
        rotate_row(x + row * stride, cosines + row * half, sines + row * half, y + row * heads * head_dim, heads, half);
}

void silu_mul(const bfloat16* gate_up, bfloat16* y, int64_t rows, int64_t width) {
#pragma omp parallel for if (rows * width >= kParallelFrom)
    for (int64_t row = 0; row < rows; ++row) gate_row(gate_up + row * 2 * width, y + row * width, width);
}

void write_rows(const bfloat16* values, int64_t stride, bfloat16* cache, const int64_t* slots, int64_t rows,
                int64_t width) {
    for (int64_t row = 0; row < rows; ++row)
        __builtin_memcpy(cache + slots[row] * width, values + row * stride, width * sizeof(bfloat16));
}

}  // namespace
}  // namespace turnout::TURNOUT_SET
