// What the AVX-512 kernels share: the target attribute, bfloat16 in and out, small transposes, the exponential.
#pragma once

#include <immintrin.h>

#include <cstdint>

// Per function rather than per file, so that nothing outside the kernels is compiled for a CPU that may be missing.
#define TURNOUT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define TURNOUT_INLINE TURNOUT_AVX512 __attribute__((always_inline)) static inline

namespace turnout {

using bfloat16 = std::uint16_t;

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

}  // namespace turnout
