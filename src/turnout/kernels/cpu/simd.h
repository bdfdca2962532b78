// What the AVX-512 kernels share: the target attribute, bfloat16 in and out, small transposes, the exponential.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

#include "kernels.h"

// Per function rather than per file, so that nothing outside the kernels is compiled for a CPU that may be missing.
#define TURNOUT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define TURNOUT_INLINE TURNOUT_AVX512 __attribute__((always_inline)) static inline

namespace turnout {

// The mask of the first `count` of 16 lanes; all for more, none for less than one.
TURNOUT_INLINE __mmask16 first_lanes(std::int64_t count) {
    if (count >= 16) return 0xFFFF;
    return count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

TURNOUT_INLINE __mmask32 first_lanes_of_32(std::int64_t count) {
    if (count >= 32) return 0xFFFFFFFF;
    return count <= 0 ? 0 : static_cast<__mmask32>((1ull << count) - 1);
}

TURNOUT_INLINE __m512 widen(__m256i narrow) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

TURNOUT_INLINE __m512 load_bfloat16(const bfloat16* from, __mmask16 lanes) {
    return widen(_mm256_maskz_loadu_epi16(lanes, from));
}

TURNOUT_INLINE void store_bfloat16(bfloat16* to, __mmask16 lanes, __m512 values) {
    _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(values));
}

// Two bfloat16 side by side, in every lane.
TURNOUT_INLINE __m512bh broadcast_pair(const bfloat16* pair) {
    std::int32_t bits;
    __builtin_memcpy(&bits, pair, 4);
    return (__m512bh)_mm512_set1_epi32(bits);
}

// 2^x to float32's precision; NaN stays NaN.
TURNOUT_INLINE __m512 exp2(__m512 x) {
    // In this order a NaN passes the bounds, which lie beyond the exponents of float32.
    x = _mm512_min_ps(_mm512_set1_ps(200.0f), _mm512_max_ps(_mm512_set1_ps(-200.0f), x));
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 rest = _mm512_sub_ps(x, whole);
    // Taylor's series, for at most half in either direction.
    __m512 power = _mm512_set1_ps(1.54035304e-4f);
    for (float coefficient : {1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f, 6.93147181e-1f, 1.0f})
        power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(coefficient));
    return _mm512_scalef_ps(power, whole);
}

constexpr float kLog2E = 1.44269504f;

// Transposes 8 x 8 lanes of 32 bits in the lower and in the upper half of eight registers, each half by itself.
TURNOUT_INLINE void transpose_halves(__m512i r[8]) {
    __m512i t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_permutex2var_epi64(r[i], low, r[i + 4]);
        t[i + 4] = _mm512_permutex2var_epi64(r[i], high, r[i + 4]);
    }
    for (int i = 0; i < 8; ++i) r[i] = t[i];
}

}  // namespace turnout
