// The kernels' calls, and a table of those for one instruction set. Matrices are row-major bfloat16 unless said otherwise;
// nothing is checked. Functions declared here outside of a table are the ones for AVX-512 BF16.
//
// Units that include this are compiled for different CPUs: whatever has code must have internal linkage here, and the
// standard library's templates stay out, or the linker may keep one CPU's copy of a function for all.
#pragma once

#include <cstdint>

namespace turnout {

using bfloat16 = std::uint16_t;

// y = x @ weight.T + bias. `panels` is the weight as [outputs / 32][inputs / 2][32][2], padded with zeros: bfloat16, or
// with `scales` int8, a factor for each output. Scales and bias are float32, padded to whole panels, or null.
// x [rows, inputs]; y [rows, outputs], float32 or bfloat16.
struct Linear {
    const bfloat16* x;
    const void* panels;
    const float *scales, *bias;
    void* y;
    std::int64_t rows, inputs, outputs;
    bool float_output;
};
void linear(const Linear& call);

// One adapter's part in one target of a fused linear, for the rows of one segment:
// y[rows, columns] += scale * (x @ a.T) @ b.T, with a [rank, inputs] and b [outputs, rank].
struct LoraPart {
    const bfloat16* x;
    bfloat16* y;  // the first of the rows and columns
    const bfloat16 *a, *b;
    float scale;
    std::int64_t rows, outputs, rank;
};
struct LoraParts {
    const LoraPart* first;
    std::int64_t count;
};
static inline const LoraPart* begin(const LoraParts& parts) { return parts.first; }
static inline const LoraPart* end(const LoraParts& parts) { return parts.first + parts.count; }

// A linear with results in bfloat16, then all parts on top of it, which own different rows or columns of y. `inputs` is
// common to the parts; the linear's own may be one more, for theirs are even.
void adapted_linear(const Linear& base, const LoraParts& parts, std::int64_t inputs);

// Causal grouped-query attention over paged keys; see interface.py for the meaning of rows and tables. q and out are
// [rows, heads, head_dim], q with `q_stride` elements from row to row; caches [blocks, block_size, kv_heads, head_dim].
struct Attention {
    const bfloat16 *q, *k_cache, *v_cache;
    bfloat16* out;
    const std::int32_t *query_starts, *context_lengths, *block_tables;
    std::int64_t sequences, table_width, q_stride, block_size, heads, kv_heads, head_dim;
    std::int64_t window;  // keys a row may see, its own included
    float scale;
    float soft_cap;  // 0 for none
};
void attention(const Attention& call);

// y[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight; x, y [rows, width]. With a delta, x + delta stands for x, rounded
// to bfloat16 and kept in `sum`.
void rms_norm(const bfloat16* x, const bfloat16* delta, const bfloat16* weight, bfloat16* sum, bfloat16* y,
              std::int64_t rows, std::int64_t width, float eps);

// Turns the pairs (x[i], x[i + head_dim / 2]) of every head. x, y [rows, heads, head_dim], x with `stride` elements
// from row to row; cosines, sines float32 [rows, head_dim / 2].
void rope(const bfloat16* x, std::int64_t stride, const float* cosines, const float* sines, bfloat16* y,
          std::int64_t rows, std::int64_t heads, std::int64_t head_dim);

// silu(gate) * up; gate_up [rows, 2 * width], y [rows, width].
void silu_mul(const bfloat16* gate_up, bfloat16* y, std::int64_t rows, std::int64_t width);

// cache[slots[row]] = values[row], both of `width` elements, with `stride` elements from row to row of `values`.
void write_rows(const bfloat16* values, std::int64_t stride, bfloat16* cache, const std::int64_t* slots,
                std::int64_t rows, std::int64_t width);

// All kernels for one instruction set.
struct KernelSet {
    const char* name;
    decltype(turnout::linear)* linear;
    decltype(turnout::adapted_linear)* adapted_linear;
    decltype(turnout::attention)* attention;
    decltype(turnout::rms_norm)* rms_norm;
    decltype(turnout::rope)* rope;
    decltype(turnout::silu_mul)* silu_mul;
    decltype(turnout::write_rows)* write_rows;
};

}  // namespace turnout
