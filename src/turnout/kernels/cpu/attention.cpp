// Attention over paged keys, a tile of 32 keys at a time with an online softmax (Milakov and Gimelshein 2018,
// https://arxiv.org/abs/1805.02867).
//
// Tiles start at multiples of 32 positions, and a row goes through its own in order, from the first key it sees to its
// own: its result depends neither on how its prompt was cut into steps nor on the rows beside it. The heads that share
// keys and the rows of one unit of work share the unpacked tile.

#include <omp.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "kernels.h"
#include "share.h"
#include "simd.h"

namespace turnout {
namespace {

constexpr std::int64_t kTile = 32;      // keys
constexpr std::int64_t kRows = 16;      // rows of one unit of work
constexpr std::int64_t kSequences = 2;  // sequences for each thread from which on heads stay together
constexpr std::int64_t kColumns = 32;  // of the values, to which their tile is padded

// Rows of one sequence, from `first` to `last`, and some of its key heads with the query heads that read them.
struct Unit {
    std::int64_t sequence, first, last, first_head, last_head;
};

// What a thread needs for one unit: a tile, and for each query, a row's head, what it has summed up so far.
struct Scratch {
    Scratch(const Attention& call)
        : pairs((call.head_dim + 15) / 16 * 8),
          columns((call.head_dim + kColumns - 1) / kColumns * kColumns),
          keys(new std::int32_t[pairs * kTile]),
          values(new float[kTile * columns]),
          maxima(new float[kRows * call.heads]),
          sums(new float[kRows * call.heads * 16]),
          outputs(new float[kRows * call.heads * columns]) {}

    std::int64_t pairs, columns;
    std::unique_ptr<std::int32_t[]> keys;  // [pairs][32]: two dimensions of every key side by side
    std::unique_ptr<float[]> values;       // [32][columns]
    std::unique_ptr<float[]> maxima;       // [queries]
    std::unique_ptr<float[]> sums;         // [queries][16]: the softmax's denominator, still spread over lanes
    std::unique_ptr<float[]> outputs;      // [queries][columns]
};

std::int64_t position_of(const Attention& call, const Unit& unit, std::int64_t row) {
    return call.context_lengths[unit.sequence] - call.query_starts[unit.sequence + 1] + row;
}

// Where the scratch has the sums of a row's query heads that read a head of the unit.
std::int64_t query_of(const Attention& call, const Unit& unit, std::int64_t row, std::int64_t head) {
    const std::int64_t rows = unit.last - unit.first;
    return (head * rows + row - unit.first) * (call.heads / call.kv_heads);
}

std::int64_t first_visible(const Attention& call, std::int64_t position) {
    return std::max<std::int64_t>(0, position - call.window + 1);
}

// Up to 32 keys of a sequence, from a multiple of 32 on; those from `first` to `last`, places in the tile, count.
struct Tile {
    std::int64_t first, last;
    std::int64_t offsets[kTile];  // where the first of the unit's heads starts in the caches
};

// The first key that a unit's rows see, and the one after the last.
std::int64_t begin_of(const Attention& call, const Unit& unit) {
    return first_visible(call, position_of(call, unit, unit.first));
}
std::int64_t end_of(const Attention& call, const Unit& unit) { return position_of(call, unit, unit.last - 1) + 1; }

std::int64_t first_tile(const Attention& call, const Unit& unit) { return begin_of(call, unit) / kTile * kTile; }

// The tile at `start`, cut down to what the unit's rows see.
Tile locate(const Attention& call, const Unit& unit, std::int64_t start) {
    const std::int32_t* table = call.block_tables + unit.sequence * call.table_width;
    const std::int64_t first = std::max(begin_of(call, unit) - start, std::int64_t{0});
    Tile tile{first, std::min(end_of(call, unit) - start, kTile), {}};
    for (std::int64_t i = tile.first; i < tile.last; ++i) {
        const std::int64_t key = start + i;
        const std::int64_t slot = table[key / call.block_size] * call.block_size + key % call.block_size;
        tile.offsets[i] = (slot * call.kv_heads + unit.first_head) * call.head_dim;
    }
    return tile;
}

// Asks for one head of a key and its value. No hardware prefetcher follows a block table.
void prefetch(const Attention& call, const Tile& tile, std::int64_t key, std::int64_t head) {
    if (key < tile.first || key >= tile.last) return;
    const std::int64_t offset = tile.offsets[key] + head * call.head_dim;
    for (std::int64_t d = 0; d < call.head_dim; d += 32) {
        __builtin_prefetch(call.k_cache + offset + d);
        __builtin_prefetch(call.v_cache + offset + d);
    }
}

// Unpacks one head of a tile's keys; those that do not count become zero.
TURNOUT_AVX512 void unpack_keys(const Attention& call, const Tile& tile, std::int64_t head, Scratch& scratch) {
    for (std::int64_t half = 0; half < kTile; half += 16) {
        for (std::int64_t d = 0; d < call.head_dim; d += 16) {
            const auto load = [&](std::int64_t key) TURNOUT_AVX512 {
                const bool counts = tile.first <= key && key < tile.last;
                const bfloat16* from = call.k_cache + (counts ? tile.offsets[key] + head * call.head_dim + d : 0);
                return _mm256_maskz_loadu_epi16(counts ? first_lanes(call.head_dim - d) : 0, from);
            };
            __m512i pairs[8];
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i)
                pairs[i] = _mm512_inserti64x4(_mm512_castsi256_si512(load(half + i)), load(half + i + 8), 1);
            transpose_halves(pairs);
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) _mm512_storeu_si512(scratch.keys.get() + (d / 2 + i) * kTile + half, pairs[i]);
        }
    }
}

// Unpacks one head of a tile's values, and asks for the next tile meanwhile.
TURNOUT_AVX512 void unpack_values(const Attention& call, const Tile& tile, const Tile& next, std::int64_t head,
                                  Scratch& scratch) {
    for (std::int64_t key = 0; key < kTile; ++key) {
        prefetch(call, next, key, head);
        if (key < tile.first || key >= tile.last) continue;
        const bfloat16* from = call.v_cache + tile.offsets[key] + head * call.head_dim;
        for (std::int64_t d = 0; d < scratch.columns; d += 16) {
            const __mmask16 lanes = first_lanes(call.head_dim - d);
            const __m512 values = lanes ? load_bfloat16(from + d, lanes) : _mm512_setzero_ps();
            _mm512_storeu_ps(scratch.values.get() + key * scratch.columns + d, values);
        }
    }
}

// log2(e) * cap * tanh(scores * scale / cap), with tanh(x) = 1 - 2 / (exp(2x) + 1).
TURNOUT_INLINE __m512 soften(__m512 scores, float scale, float cap) {
    const __m512 one = _mm512_set1_ps(1.0f), two = _mm512_set1_ps(2.0f), most = _mm512_set1_ps(cap * kLog2E);
    const __m512 power = exp2(_mm512_mul_ps(scores, _mm512_set1_ps(2.0f * kLog2E * scale / cap)));
    return _mm512_mul_ps(most, _mm512_sub_ps(one, _mm512_div_ps(two, _mm512_add_ps(power, one))));
}

// Brings the tile's keys `first` to `last` into the sums of QUERIES heads of one row. q [QUERIES, head_dim].
template <int QUERIES>
TURNOUT_AVX512 void add_tile(const Attention& call, const bfloat16* q, std::int64_t first, std::int64_t last,
                             std::int64_t query, Scratch& scratch) {
    __m512 scores[QUERIES][2];
    for (int n = 0; n < QUERIES; ++n) scores[n][0] = scores[n][1] = _mm512_setzero_ps();
    for (std::int64_t pair = 0; pair < call.head_dim / 2; ++pair) {
        const std::int32_t* keys = scratch.keys.get() + pair * kTile;
        const __m512bh low = (__m512bh)_mm512_loadu_si512(keys), high = (__m512bh)_mm512_loadu_si512(keys + 16);
        for (int n = 0; n < QUERIES; ++n) {
            const __m512bh both = broadcast_pair(q + n * call.head_dim + 2 * pair);
            scores[n][0] = _mm512_dpbf16_ps(scores[n][0], low, both);
            scores[n][1] = _mm512_dpbf16_ps(scores[n][1], high, both);
        }
    }

    const __mmask32 visible = first_lanes_of_32(last) & ~first_lanes_of_32(first);
    const __mmask16 halves[2] = {static_cast<__mmask16>(visible), static_cast<__mmask16>(visible >> 16)};
    const __m512 scale = _mm512_set1_ps(call.scale * kLog2E);
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    alignas(64) float weights[QUERIES][kTile];
    __m512 decay[QUERIES];
    for (int n = 0; n < QUERIES; ++n) {
        float& maximum = scratch.maxima[query + n];
        for (int half = 0; half < 2; ++half)
            scores[n][half] = call.soft_cap > 0.0f
                                  ? _mm512_mask_mov_ps(_mm512_set1_ps(kNone), halves[half],
                                                       soften(scores[n][half], call.scale, call.soft_cap))
                                  : _mm512_mask_mul_ps(_mm512_set1_ps(kNone), halves[half], scores[n][half], scale);
        const float highest = std::max(maximum, _mm512_reduce_max_ps(_mm512_max_ps(scores[n][0], scores[n][1])));
        const __m512 offset = _mm512_set1_ps(highest == kNone ? 0.0f : highest);
        decay[n] = exp2(_mm512_sub_ps(_mm512_set1_ps(maximum), offset));
        maximum = highest;
        __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(&scratch.sums[(query + n) * 16]), decay[n]);
        for (int half = 0; half < 2; ++half) {
            const __m512 weight = _mm512_maskz_mov_ps(halves[half], exp2(_mm512_sub_ps(scores[n][half], offset)));
            sum = _mm512_add_ps(sum, weight);
            _mm512_store_ps(weights[n] + 16 * half, weight);
        }
        _mm512_storeu_ps(&scratch.sums[(query + n) * 16], sum);
    }

    for (std::int64_t column = 0; column < scratch.columns; column += kColumns) {
        __m512 sums[QUERIES][2];
        float* outputs = scratch.outputs.get() + query * scratch.columns + column;
        for (int n = 0; n < QUERIES; ++n)
            for (int half = 0; half < 2; ++half)
                sums[n][half] = _mm512_mul_ps(_mm512_loadu_ps(outputs + n * scratch.columns + 16 * half), decay[n]);
        for (std::int64_t key = first; key < last; ++key) {
            const float* values = scratch.values.get() + key * scratch.columns + column;
            const __m512 low = _mm512_loadu_ps(values), high = _mm512_loadu_ps(values + 16);
            for (int n = 0; n < QUERIES; ++n) {
                const __m512 weight = _mm512_set1_ps(weights[n][key]);
                sums[n][0] = _mm512_fmadd_ps(weight, low, sums[n][0]);
                sums[n][1] = _mm512_fmadd_ps(weight, high, sums[n][1]);
            }
        }
        for (int n = 0; n < QUERIES; ++n)
            for (int half = 0; half < 2; ++half)
                _mm512_storeu_ps(outputs + n * scratch.columns + 16 * half, sums[n][half]);
    }
}

// Brings one head of a tile into all of the unit's rows.
void add_head(const Attention& call, const Unit& unit, const Tile& tile, const Tile& next, std::int64_t start,
              std::int64_t head, Scratch& scratch) {
    const std::int64_t group = call.heads / call.kv_heads;
    unpack_keys(call, tile, head, scratch);
    unpack_values(call, tile, next, head, scratch);
    for (std::int64_t row = unit.first; row < unit.last; ++row) {
        const std::int64_t position = position_of(call, unit, row);
        const std::int64_t first = std::max<std::int64_t>(0, first_visible(call, position) - start);
        const std::int64_t last = std::min(kTile, position + 1 - start);
        if (first >= last) continue;
        const bfloat16* q = call.q + row * call.q_stride + (unit.first_head + head) * group * call.head_dim;
        std::int64_t query = query_of(call, unit, row, head), rest = group;
        for (; rest >= 4; rest -= 4, query += 4, q += 4 * call.head_dim)
            add_tile<4>(call, q, first, last, query, scratch);
        switch (rest) {
            case 1: add_tile<1>(call, q, first, last, query, scratch); break;
            case 2: add_tile<2>(call, q, first, last, query, scratch); break;
            case 3: add_tile<3>(call, q, first, last, query, scratch); break;
        }
    }
}

TURNOUT_AVX512 void store_head(const Attention& call, const Scratch& scratch, std::int64_t query, bfloat16* out) {
    const __m512 total = _mm512_set1_ps(_mm512_reduce_add_ps(_mm512_loadu_ps(&scratch.sums[query * 16])));
    for (std::int64_t d = 0; d < call.head_dim; d += 16) {
        const __m512 sum = _mm512_loadu_ps(&scratch.outputs[query * scratch.columns + d]);
        store_bfloat16(out + d, first_lanes(call.head_dim - d), _mm512_div_ps(sum, total));
    }
}

// Goes through a unit's tiles; `ahead` is the first, which has been located, and becomes that of the unit after.
void attend(const Attention& call, const Unit& unit, const Unit* after, Tile& ahead, Scratch& scratch) {
    const std::int64_t group = call.heads / call.kv_heads, heads = unit.last_head - unit.first_head;
    const std::int64_t queries = (unit.last - unit.first) * heads * group;
    std::fill_n(scratch.maxima.get(), queries, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sums.get(), queries * 16, 0.0f);
    std::fill_n(scratch.outputs.get(), queries * scratch.columns, 0.0f);

    const std::int64_t end = end_of(call, unit);
    for (std::int64_t start = first_tile(call, unit); start < end; start += kTile) {
        const Tile tile = ahead;
        if (start + kTile < end)
            ahead = locate(call, unit, start + kTile);
        else if (after)
            ahead = locate(call, *after, first_tile(call, *after));
        else
            ahead.last = 0;
        for (std::int64_t head = 0; head < heads; ++head) add_head(call, unit, tile, ahead, start, head, scratch);
    }
    for (std::int64_t row = unit.first; row < unit.last; ++row) {
        bfloat16* out = call.out + (row * call.heads + unit.first_head * group) * call.head_dim;
        for (std::int64_t head = 0; head < heads * group; ++head)
            store_head(call, scratch, query_of(call, unit, row, head / group) + head % group,
                       out + head * call.head_dim);
    }
}

std::vector<Unit> units_of(const Attention& call, int threads) {
    // The keys of all heads lie side by side and are best read together, if there are sequences enough to share out.
    const std::int64_t together = call.sequences >= kSequences * threads ? call.kv_heads : 1;
    std::vector<Unit> units;
    for (std::int64_t sequence = 0; sequence < call.sequences; ++sequence) {
        const std::int64_t end = call.query_starts[sequence + 1];
        for (std::int64_t head = 0; head < call.kv_heads; head += together)
            for (std::int64_t first = call.query_starts[sequence]; first < end; first += kRows)
                units.push_back({sequence, first, std::min(first + kRows, end), head, head + together});
    }
    return units;
}

// Roughly, in key and query pairs; a tile is unpacked at the price of a few queries.
std::int64_t cost_of(const Attention& call, const Unit& unit) {
    const std::int64_t queries = (unit.last - unit.first) * (call.heads / call.kv_heads);
    return (end_of(call, unit) - first_tile(call, unit)) * (unit.last_head - unit.first_head) * (queries + 4);
}

}  // namespace

void attention(const Attention& call) {
    const std::vector<Unit> units = units_of(call, omp_get_max_threads());
    std::int64_t total = 0;
    for (const Unit& unit : units) total += cost_of(call, unit);
#pragma omp parallel
    {
        Share share(total, omp_get_thread_num(), omp_get_num_threads());
        std::vector<const Unit*> own;
        for (const Unit& unit : units) {
            share.advance(1, cost_of(call, unit));
            if (share.first() < share.last()) own.push_back(&unit);
        }
        Scratch scratch(call);
        Tile ahead{};
        if (!own.empty()) ahead = locate(call, *own[0], first_tile(call, *own[0]));
        for (std::size_t i = 0; i < own.size(); ++i)
            attend(call, *own[i], i + 1 < own.size() ? own[i + 1] : nullptr, ahead, scratch);
    }
}

}  // namespace turnout
