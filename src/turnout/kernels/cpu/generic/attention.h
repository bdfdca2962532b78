// Attention over paged keys, a tile of 32 keys at a time with an online softmax, as in attention.cpp, and independent of
// its neighbours for the same reasons: tiles start at multiples of 32 positions, and a row goes through its own in order.
#pragma once

#include <omp.h>

#include "vector.h"

namespace turnout::TURNOUT_SET {
namespace {

constexpr int kTile = 32;                 // keys, and columns of the values that add up together
constexpr int kParts = kTile / kLanes;    // vectors in these
constexpr int kQueries = 8 / kParts;      // heads that share a tile's vectors
constexpr int64_t kUnitRows = 16;
constexpr float kNone = -__builtin_inff();
constexpr std::int32_t kPlaces[kTile] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                         16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Rows of one sequence, from `first` to `last`, and a key head with the query heads that read it.
struct Unit {
    int64_t sequence, first, last, head;
};

// What a thread needs for one unit: a tile, and for each query, a row's head, what it has summed up so far.
struct Scratch {
    explicit Scratch(const Attention& call)
        : group(call.heads / call.kv_heads),
          columns(pieces(call.head_dim, kTile) * kTile),
          keys(pieces(call.head_dim, 2 * kLanes) * 2 * kLanes * kTile),
          values(kTile * columns),
          queries(kUnitRows * group * call.head_dim),
          maxima(kUnitRows * group),
          sums(kUnitRows * group * kLanes),
          outputs(kUnitRows * group * columns) {}

    int64_t group, columns;
    Buffer<float> keys;     // [head_dim][32]
    Buffer<float> values;   // [32][columns]
    Buffer<float> queries;  // [queries][head_dim]
    Buffer<float> maxima;   // [queries]
    Buffer<float> sums;     // [queries][lanes]: the softmax's denominator, still spread over lanes
    Buffer<float> outputs;  // [queries][columns]
};

TURNOUT_INLINE int64_t position_of(const Attention& call, const Unit& unit, int64_t row) {
    return call.context_lengths[unit.sequence] - call.query_starts[unit.sequence + 1] + row;
}

TURNOUT_INLINE int64_t first_visible(const Attention& call, int64_t position) {
    return larger(0, position - call.window + 1);
}

// Keys `first` to `last` of a tile are some of the unit's; where their head starts in the caches.
struct Tile {
    int64_t first, last, offsets[kTile];
};

Tile locate(const Attention& call, const Unit& unit, int64_t start) {
    const std::int32_t* table = call.block_tables + unit.sequence * call.table_width;
    const int64_t begin = first_visible(call, position_of(call, unit, unit.first));
    const int64_t end = position_of(call, unit, unit.last - 1) + 1;
    Tile tile{larger(begin - start, 0), smaller(end - start, kTile), {}};
    for (int64_t i = tile.first; i < tile.last; ++i) {
        const int64_t key = start + i;
        const int64_t slot = table[key / call.block_size] * call.block_size + key % call.block_size;
        tile.offsets[i] = (slot * call.kv_heads + unit.head) * call.head_dim;
        for (int64_t d = 0; d < call.head_dim; d += 32) {
            __builtin_prefetch(call.k_cache + tile.offsets[i] + d);
            __builtin_prefetch(call.v_cache + tile.offsets[i] + d);
        }
    }
    return tile;
}

// Unpacks a tile's keys, dimension by dimension; those that do not count become zero.
void unpack_keys(const Attention& call, const Tile& tile, float* keys) {
    for (int first = 0; first < kTile; first += kLanes) {
        for (int64_t d = 0; d < call.head_dim; d += 2 * kLanes) {
            Bits pairs[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                const bool counts = tile.first <= first + i && first + i < tile.last;
                pairs[i] = load_first<Bits>(call.k_cache + tile.offsets[first + i] + d, counts ? call.head_dim - d : 0);
            }
            transpose(pairs);
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                store(keys + (d + 2 * i) * kTile + first, evens(pairs[i]));
                store(keys + (d + 2 * i + 1) * kTile + first, odds(pairs[i]));
            }
        }
    }
}

void unpack_values(const Attention& call, const Tile& tile, int64_t columns, float* values) {
    for (int64_t key = tile.first; key < tile.last; ++key)
        for (int64_t d = 0; d < columns; d += kLanes)
            store(values + key * columns + d, load_bfloat16(call.v_cache + tile.offsets[key] + d, call.head_dim - d));
}

// log2(e) times the score: scaled, and capped by cap * tanh(score / cap), with tanh(x) = 1 - 2 / (exp(2x) + 1).
TURNOUT_INLINE Floats scaled(const Attention& call, Floats scores) {
    if (call.soft_cap <= 0.0f) return scores * (call.scale * kLog2E);
    const Floats power = exp2(scores * (2.0f * kLog2E * call.scale / call.soft_cap));
    return call.soft_cap * kLog2E * (1.0f - 2.0f / (power + 1.0f));
}

// Which of the tile's keys in this part count: those from `first` to `last`.
TURNOUT_INLINE Ints visible_in(int part, int64_t first, int64_t last) {
    const Ints places = load<Ints>(kPlaces + part * kLanes);
    return (places >= static_cast<int>(first)) & (places < static_cast<int>(last));
}

// Brings the tile's keys `first` to `last` into the sums of QUERIES heads of one row.
template <int QUERIES>
void add_tile(const Attention& call, int64_t first, int64_t last, int64_t query, const Scratch& scratch) {
    Floats scores[QUERIES][kParts] = {};
    const float* q = &scratch.queries[query * call.head_dim];
    for (int64_t d = 0; d < call.head_dim; ++d) {
        const float* keys = &scratch.keys[d * kTile];
#pragma GCC unroll 4
        for (int n = 0; n < QUERIES; ++n) {
            const Floats factor = splat(q[n * call.head_dim + d]);
#pragma GCC unroll 8
            for (int p = 0; p < kParts; ++p)
                scores[n][p] = multiply_add(factor, load<Floats>(keys + p * kLanes), scores[n][p]);
        }
    }

    alignas(64) float weights[QUERIES][kTile];
    float decay[QUERIES];
    for (int n = 0; n < QUERIES; ++n) {
        Floats highest = splat(kNone);
#pragma GCC unroll 8
        for (int p = 0; p < kParts; ++p) {
            scores[n][p] = visible_in(p, first, last) ? scaled(call, scores[n][p]) : splat(kNone);
            highest = scores[n][p] > highest ? scores[n][p] : highest;
        }
        const float before = scratch.maxima[query + n], here = maximum_of(highest);
        const float maximum = here > before ? here : before, offset = maximum == kNone ? 0.0f : maximum;
        scratch.maxima[query + n] = maximum;
        const Floats fading = exp2(splat(before - offset));
        decay[n] = fading[0];
        Floats sum = load<Floats>(&scratch.sums[(query + n) * kLanes]) * fading;
#pragma GCC unroll 8
        for (int p = 0; p < kParts; ++p) {
            const Floats weight = visible_in(p, first, last) ? exp2(scores[n][p] - offset) : Floats{};
            sum = sum + weight;
            store(weights[n] + p * kLanes, weight);
        }
        store(&scratch.sums[(query + n) * kLanes], sum);
    }

    for (int64_t column = 0; column < scratch.columns; column += kTile) {
        float* outputs = &scratch.outputs[query * scratch.columns + column];
        Floats sums[QUERIES][kParts];
#pragma GCC unroll 4
        for (int n = 0; n < QUERIES; ++n)
#pragma GCC unroll 8
            for (int p = 0; p < kParts; ++p)
                sums[n][p] = load<Floats>(outputs + n * scratch.columns + p * kLanes) * decay[n];
        for (int64_t key = first; key < last; ++key) {
            const float* values = &scratch.values[key * scratch.columns + column];
#pragma GCC unroll 4
            for (int n = 0; n < QUERIES; ++n) {
                const Floats weight = splat(weights[n][key]);
#pragma GCC unroll 8
                for (int p = 0; p < kParts; ++p)
                    sums[n][p] = multiply_add(weight, load<Floats>(values + p * kLanes), sums[n][p]);
            }
        }
#pragma GCC unroll 4
        for (int n = 0; n < QUERIES; ++n)
#pragma GCC unroll 8
            for (int p = 0; p < kParts; ++p) store(outputs + n * scratch.columns + p * kLanes, sums[n][p]);
    }
}

// Unpacks the unit's queries and clears their sums.
void begin(const Attention& call, const Unit& unit, const Scratch& scratch) {
    const int64_t width = scratch.group * call.head_dim, queries = (unit.last - unit.first) * scratch.group;
    for (int64_t row = unit.first; row < unit.last; ++row) {
        const bfloat16* q = call.q + row * call.q_stride + unit.head * width;
        float* to = &scratch.queries[(row - unit.first) * width];
        for (int64_t d = 0; d < width; d += kLanes) store_floats(to + d, width - d, load_bfloat16(q + d, width - d));
    }
    for (int64_t i = 0; i < queries; ++i) scratch.maxima[i] = kNone;
    __builtin_memset(scratch.sums.get(), 0, queries * kLanes * sizeof(float));
    __builtin_memset(scratch.outputs.get(), 0, queries * scratch.columns * sizeof(float));
}

void finish(const Attention& call, const Unit& unit, const Scratch& scratch) {
    for (int64_t row = unit.first; row < unit.last; ++row) {
        for (int64_t n = 0; n < scratch.group; ++n) {
            const int64_t query = (row - unit.first) * scratch.group + n;
            bfloat16* out = call.out + (row * call.heads + unit.head * scratch.group + n) * call.head_dim;
            const float total = sum_of(load<Floats>(&scratch.sums[query * kLanes]));
            for (int64_t d = 0; d < call.head_dim; d += kLanes)
                store_bfloat16(out + d, call.head_dim - d,
                               load<Floats>(&scratch.outputs[query * scratch.columns + d]) / total);
        }
    }
}

void attend(const Attention& call, const Unit& unit, const Scratch& scratch) {
    begin(call, unit, scratch);
    const int64_t first_key = first_visible(call, position_of(call, unit, unit.first));
    const int64_t end = position_of(call, unit, unit.last - 1) + 1;
    for (int64_t start = first_key / kTile * kTile; start < end; start += kTile) {
        const Tile tile = locate(call, unit, start);
        unpack_keys(call, tile, scratch.keys.get());
        unpack_values(call, tile, scratch.columns, scratch.values.get());
        for (int64_t row = unit.first; row < unit.last; ++row) {
            const int64_t position = position_of(call, unit, row);
            const int64_t first = larger(0, first_visible(call, position) - start);
            const int64_t last = smaller(kTile, position + 1 - start);
            if (first >= last) continue;
            int64_t query = (row - unit.first) * scratch.group, rest = scratch.group;
            for (; rest >= kQueries; rest -= kQueries, query += kQueries)
                add_tile<kQueries>(call, first, last, query, scratch);
            for (; rest > 0; --rest, ++query) add_tile<1>(call, first, last, query, scratch);
        }
    }
    finish(call, unit, scratch);
}

void attention(const Attention& call) {
    int64_t count = 0;
    for (int64_t s = 0; s < call.sequences; ++s)
        count += pieces(call.query_starts[s + 1] - call.query_starts[s], kUnitRows) * call.kv_heads;
    const Buffer<Unit> units(count);
    Unit* next = units.get();
    for (int64_t s = 0; s < call.sequences; ++s)
        for (int64_t first = call.query_starts[s]; first < call.query_starts[s + 1]; first += kUnitRows)
            for (int64_t head = 0; head < call.kv_heads; ++head)
                *next++ = {s, first, smaller(first + kUnitRows, call.query_starts[s + 1]), head};
#pragma omp parallel
    {
        const Scratch scratch(call);
#pragma omp for schedule(dynamic) nowait
        for (int64_t i = 0; i < count; ++i) attend(call, units[i], scratch);
    }
}

}  // namespace
}  // namespace turnout::TURNOUT_SET
