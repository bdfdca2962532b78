// Vectors of float32 as wide as the registers of the CPU that the unit is compiled for, in GCC's vector extensions.
//
// Everything has internal linkage and nothing is the standard library's, for the reason that kernels.h gives.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <new>
#include <utility>

#include "../kernels.h"

#define TURNOUT_INLINE __attribute__((always_inline)) static inline

namespace turnout::TURNOUT_SET {
namespace {

using std::int64_t;

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRegisters = 16;
#else
constexpr int kLanes = 4, kRegisters = 16;
#endif

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * kLanes)));
using Bits = std::uint32_t __attribute__((vector_size(4 * kLanes)));
using Shorts = std::int16_t __attribute__((vector_size(2 * kLanes)));
using Halves = std::uint16_t __attribute__((vector_size(2 * kLanes)));

TURNOUT_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
TURNOUT_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
TURNOUT_INLINE int64_t pieces(int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; }

// Memory for one call, at a line of the cache.
template <typename T>
class Buffer {
  public:
    explicit Buffer(int64_t count)
        : data_(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), kLine))) {}
    ~Buffer() { ::operator delete(data_, kLine); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* get() const { return data_; }
    T& operator[](int64_t at) const { return data_[at]; }

  private:
    static constexpr std::align_val_t kLine{64};
    T* data_;
};

template <typename Vector>
TURNOUT_INLINE Vector load(const void* from) {
    Vector values;
    __builtin_memcpy(&values, from, sizeof values);
    return values;
}

// The first `count` elements of 2 bytes; zeros in the place of others. None are read for a count below one.
template <typename Vector>
TURNOUT_INLINE Vector load_first(const bfloat16* from, int64_t count) {
    constexpr int64_t all = sizeof(Vector) / sizeof(bfloat16);
    if (count >= all) return load<Vector>(from);
    Vector values = {};
    if (count > 0) __builtin_memcpy(&values, from, count * sizeof(bfloat16));
    return values;
}

template <typename Vector>
TURNOUT_INLINE void store(void* to, Vector values) {
    __builtin_memcpy(to, &values, sizeof values);
}

TURNOUT_INLINE Floats splat(float value) { return value - Floats{}; }

// a * b + c, rounded once where the CPU can; never left to the compiler, so that every instance rounds alike.
TURNOUT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

TURNOUT_INLINE Floats load_bfloat16(const bfloat16* from, int64_t count) {
    return (Floats)(__builtin_convertvector(load_first<Halves>(from, count), Bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
TURNOUT_INLINE void store_bfloat16(bfloat16* to, int64_t count, Floats values) {
    const Bits bits = (Bits)values;
    const Bits rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const Bits kept = (Bits)(values == values ? (Ints)rounded : (Ints)(bits >> 16 | 0x40));
    const Halves halves = __builtin_convertvector(kept, Halves);
    if (count >= kLanes)
        store(to, halves);
    else
        __builtin_memcpy(to, &halves, count * sizeof(bfloat16));
}

TURNOUT_INLINE void store_floats(float* to, int64_t count, Floats values) {
    if (count >= kLanes)
        store(to, values);
    else
        __builtin_memcpy(to, &values, count * sizeof(float));
}

// Pairs of bfloat16, one in each lane: the first and the second of each pair.
TURNOUT_INLINE Floats evens(Bits pairs) { return (Floats)(pairs << 16); }
TURNOUT_INLINE Floats odds(Bits pairs) { return (Floats)(pairs & 0xFFFF0000u); }

// Sums and maxima over lanes, halving the vector again and again.
TURNOUT_INLINE float sum_of(Floats values) {
    float lanes[kLanes];
    store(lanes, values);
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    return lanes[0];
}

TURNOUT_INLINE float maximum_of(Floats values) {
    float lanes[kLanes];
    store(lanes, values);
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    return lanes[0];
}

constexpr float kLog2E = 1.44269504f;

// 2^x to float32's precision; NaN stays NaN, as it is on neither side of the bounds.
TURNOUT_INLINE Floats exp2(Floats x) {
    x = x > splat(200.0f) ? splat(200.0f) : x;
    x = x < splat(-200.0f) ? splat(-200.0f) : x;
    const Floats shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest whole number in the low bits
    const Floats shifted = x + shifter;
    const Floats rest = x - (shifted - shifter);
    // Taylor's series, for at most half in either direction.
    Floats power = splat(1.54035304e-4f);
    power = multiply_add(power, rest, splat(1.33335581e-3f));
    power = multiply_add(power, rest, splat(9.61812911e-3f));
    power = multiply_add(power, rest, splat(5.55041087e-2f));
    power = multiply_add(power, rest, splat(2.40226507e-1f));
    power = multiply_add(power, rest, splat(6.93147181e-1f));
    power = multiply_add(power, rest, splat(1.0f));
    // The exponent in two halves, each of which is one of float32's.
    const Ints whole = (Ints)((Bits)shifted - 0x4B400000u), half = whole >> 1;
    return power * (Floats)((Bits)(half + 127) << 23) * (Floats)((Bits)(whole - half + 127) << 23);
}

template <int... LANE>
TURNOUT_INLINE void transpose(Bits rows[kLanes], std::integer_sequence<int, LANE...>) {
    // Within each four lanes of every four rows …
    constexpr Ints low = {(LANE & ~3) + (LANE & 3) / 2 + (LANE & 1) * kLanes...}, high = low + 2;
    constexpr Ints first = {(LANE & ~2) + (LANE & 2) / 2 * kLanes...}, second = first + 2;
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i += 4) {
        const Bits a = __builtin_shuffle(rows[i], rows[i + 1], low);
        const Bits b = __builtin_shuffle(rows[i], rows[i + 1], high);
        const Bits c = __builtin_shuffle(rows[i + 2], rows[i + 3], low);
        const Bits d = __builtin_shuffle(rows[i + 2], rows[i + 3], high);
        rows[i] = __builtin_shuffle(a, c, first);
        rows[i + 1] = __builtin_shuffle(a, c, second);
        rows[i + 2] = __builtin_shuffle(b, d, first);
        rows[i + 3] = __builtin_shuffle(b, d, second);
    }
    // … then fours of lanes against fours of rows.
    if constexpr (kLanes >= 8) {
        constexpr Ints kept = {(LANE & 4 ? LANE - 4 + kLanes : LANE)...}, moved = {(LANE & 4 ? LANE + kLanes : LANE + 4)...};
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            if (i & 4) continue;
            const Bits a = rows[i], b = rows[i + 4];
            rows[i] = __builtin_shuffle(a, b, kept);
            rows[i + 4] = __builtin_shuffle(a, b, moved);
        }
    }
    if constexpr (kLanes >= 16) {
        constexpr Ints kept = {(LANE & 8 ? LANE - 8 + kLanes : LANE)...}, moved = {(LANE & 8 ? LANE + kLanes : LANE + 8)...};
#pragma GCC unroll 16
        for (int i = 0; i < 8; ++i) {
            const Bits a = rows[i], b = rows[i + 8];
            rows[i] = __builtin_shuffle(a, b, kept);
            rows[i + 8] = __builtin_shuffle(a, b, moved);
        }
    }
}

// Lanes become rows and rows lanes.
TURNOUT_INLINE void transpose(Bits rows[kLanes]) { transpose(rows, std::make_integer_sequence<int, kLanes>()); }

}  // namespace
}  // namespace turnout::TURNOUT_SET
