// The Python module. Addresses come in as integers; what tables and offsets point at is checked against the sizes of
// the buffers; the kernels run without the interpreter's lock.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "kernels.h"
#include "sets.h"

namespace nb = nanobind;
using namespace turnout;

namespace {

template <typename T>
T* pointer(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// Addresses x, panels, scales, bias, y, then rows, inputs, outputs.
Linear linear_of(const std::array<std::uintptr_t, 5>& at, std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
                 bool float_output) {
    return {pointer<const bfloat16>(at[0]), pointer<const void>(at[1]), pointer<const float>(at[2]),
            pointer<const float>(at[3]),    pointer<void>(at[4]),       rows,
            inputs,                         outputs,                    float_output};
}

void bind_linear(const KernelSet& set, std::uintptr_t x, std::uintptr_t panels, std::uintptr_t scales,
                 std::uintptr_t bias, std::uintptr_t y, std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
                 bool float_output) {
    set.linear(linear_of({x, panels, scales, bias, y}, rows, inputs, outputs, float_output));
}

template <typename T, int DIMENSIONS>
using Array = nb::ndarray<const T, nb::ndim<DIMENSIONS>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* what) {
    if (!holds) throw std::out_of_range(std::string("out of range: ") + what);
}

// Row ranges cover the rows in order.
void check_starts(const std::int32_t* starts, std::size_t count, std::int64_t rows) {
    require(count > 0 && starts[0] >= 0 && starts[count - 1] <= rows, "segment starts");
    for (std::size_t i = 1; i < count; ++i) require(starts[i - 1] <= starts[i], "segment starts");
}

// `columns`: a (target, start, stop) for each target of the fused linear.
void bind_adapted_linear(const KernelSet& set, std::uintptr_t x, std::uintptr_t panels, std::uintptr_t weight_scales,
                         std::uintptr_t bias, std::uintptr_t y, std::int64_t rows, std::int64_t even_inputs,
                         std::int64_t outputs, std::uintptr_t adapted_x, std::int64_t inputs, std::uintptr_t arena,
                         std::int64_t arena_size, const Array<std::int32_t, 1>& starts,
                         const Array<std::int64_t, 3>& a_offsets, const Array<std::int64_t, 3>& b_offsets,
                         const Array<std::int32_t, 3>& ranks, const Array<float, 3>& scales, std::size_t layer,
                         const nb::tuple& columns) {
    const Linear base = linear_of({x, panels, weight_scales, bias, y}, rows, even_inputs, outputs, false);
    const std::size_t segments = starts.shape(0) - 1, targets = ranks.shape(1);
    check_starts(starts.data(), starts.shape(0), rows);
    for (int axis = 0; axis < 3; ++axis) {
        const std::size_t size = ranks.shape(axis);
        require(a_offsets.shape(axis) == size && b_offsets.shape(axis) == size && scales.shape(axis) == size, "shapes");
    }
    require(layer < ranks.shape(0) && ranks.shape(2) == segments, "layer or segments");
    std::vector<LoraPart> parts;
    for (nb::handle column : columns) {
        const auto [target, start, stop] = nb::cast<std::tuple<std::size_t, std::int64_t, std::int64_t>>(column);
        require(target < targets && 0 <= start && start <= stop && stop <= outputs, "columns");
        for (std::size_t segment = 0; segment < segments; ++segment) {
            const std::size_t at = (layer * targets + target) * segments + segment;
            const std::int64_t rank = ranks.data()[at], first = starts.data()[segment];
            const std::int64_t count = starts.data()[segment + 1] - first, width = stop - start;
            if (rank == 0 || count == 0 || width == 0) continue;
            const std::int64_t a = a_offsets.data()[at], b = b_offsets.data()[at];
            require(rank > 0 && a >= 0 && b >= 0, "ranks or offsets");
            require(rank <= arena_size && a <= arena_size - rank * inputs && b <= arena_size - rank * width, "arena");
            parts.push_back({pointer<const bfloat16>(adapted_x) + first * inputs,
                             pointer<bfloat16>(y) + first * outputs + start,
                             pointer<const bfloat16>(arena) + a,
                             pointer<const bfloat16>(arena) + b,
                             scales.data()[at],
                             count,
                             width,
                             rank});
        }
    }
    const nb::gil_scoped_release unlocked;
    set.adapted_linear(base, {parts.data(), static_cast<std::int64_t>(parts.size())}, inputs);
}

// Every block that attention will read lies in the cache, and every sequence ends with its rows of this step.
void check_attention(const Attention& call, std::int64_t rows, std::int64_t blocks) {
    check_starts(call.query_starts, call.sequences + 1, rows);
    for (std::int64_t s = 0; s < call.sequences; ++s) {
        const std::int64_t length = call.context_lengths[s], count = call.query_starts[s + 1] - call.query_starts[s];
        if (count == 0) continue;
        require(count <= length && length <= call.table_width * call.block_size, "context lengths");
        const std::int64_t first = std::max<std::int64_t>(0, length - count + 1 - call.window) / call.block_size;
        for (std::int64_t i = first; i <= (length - 1) / call.block_size; ++i) {
            const std::int32_t block = call.block_tables[s * call.table_width + i];
            require(0 <= block && block < blocks, "block tables");
        }
    }
}

void bind_attention(const KernelSet& set, std::uintptr_t q, std::int64_t q_stride, std::uintptr_t k_cache,
                    std::uintptr_t v_cache, std::uintptr_t out, std::int64_t rows, std::int64_t heads, std::int64_t blocks,
                    std::int64_t block_size, std::int64_t kv_heads, std::int64_t head_dim,
                    const Array<std::int32_t, 1>& query_starts, const Array<std::int32_t, 1>& context_lengths,
                    const Array<std::int32_t, 2>& block_tables, float scale, std::int64_t window,
                    float soft_cap) {
    const std::size_t sequences = context_lengths.shape(0);
    require(query_starts.shape(0) == sequences + 1 && block_tables.shape(0) == sequences, "shapes");
    require(heads % kv_heads == 0 && head_dim % 2 == 0 && window > 0 && soft_cap >= 0, "heads, head_dim, window or soft cap");
    const Attention call{pointer<const bfloat16>(q),
                         pointer<const bfloat16>(k_cache),
                         pointer<const bfloat16>(v_cache),
                         pointer<bfloat16>(out),
                         query_starts.data(),
                         context_lengths.data(),
                         block_tables.data(),
                         static_cast<std::int64_t>(sequences),
                         static_cast<std::int64_t>(block_tables.shape(1)),
                         q_stride,
                         block_size,
                         heads,
                         kv_heads,
                         head_dim,
                         window,
                         scale,
                         soft_cap};
    check_attention(call, rows, blocks);
    const nb::gil_scoped_release unlocked;
    set.attention(call);
}

void bind_rms_norm(const KernelSet& set, std::uintptr_t x, std::uintptr_t delta, std::uintptr_t weight, std::uintptr_t sum, std::uintptr_t y,
                   std::int64_t rows, std::int64_t width, float eps) {
    set.rms_norm(pointer<const bfloat16>(x), pointer<const bfloat16>(delta), pointer<const bfloat16>(weight),
             pointer<bfloat16>(sum), pointer<bfloat16>(y), rows, width, eps);
}

// q, k and v are [rows, heads, head_dim] with a stride of their own each; `turned` is q's result.
void bind_rope_and_cache(const KernelSet& set, std::uintptr_t q, std::int64_t q_stride, std::uintptr_t k, std::int64_t k_stride,
                         std::uintptr_t v, std::int64_t v_stride, std::uintptr_t cosines, std::uintptr_t sines,
                         std::uintptr_t turned, std::uintptr_t k_cache, std::uintptr_t v_cache, std::uintptr_t slots,
                         std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                         std::int64_t cache_rows) {
    const std::int64_t* at = pointer<const std::int64_t>(slots);
    for (std::int64_t row = 0; row < rows; ++row) require(0 <= at[row] && at[row] < cache_rows, "slots");
    const float *cosine = pointer<const float>(cosines), *sine = pointer<const float>(sines);
    const std::int64_t width = kv_heads * head_dim;
    const std::unique_ptr<bfloat16[]> turned_k(new bfloat16[rows * width]);
    set.rope(pointer<const bfloat16>(q), q_stride, cosine, sine, pointer<bfloat16>(turned), rows, heads, head_dim);
    set.rope(pointer<const bfloat16>(k), k_stride, cosine, sine, turned_k.get(), rows, kv_heads, head_dim);
    set.write_rows(turned_k.get(), width, pointer<bfloat16>(k_cache), at, rows, width);
    set.write_rows(pointer<const bfloat16>(v), v_stride, pointer<bfloat16>(v_cache), at, rows, width);
}

void bind_silu_mul(const KernelSet& set, std::uintptr_t gate_up, std::uintptr_t y, std::int64_t rows,
                   std::int64_t width) {
    set.silu_mul(pointer<const bfloat16>(gate_up), pointer<bfloat16>(y), rows, width);
}

}  // namespace

NB_MODULE(_cpu, m) {
    nb::set_leak_warnings(false);  // sets live as long as the process, and so do those who hold one
    const nb::call_guard<nb::gil_scoped_release> unlocked;
    nb::class_<KernelSet>(m, "KernelSet")
        .def_ro("name", &KernelSet::name)
        .def("linear", &bind_linear, unlocked)
        .def("adapted_linear", &bind_adapted_linear)
        .def("attention", &bind_attention)
        .def("rms_norm", &bind_rms_norm, unlocked)
        .def("rope_and_cache", &bind_rope_and_cache, unlocked)
        .def("silu_mul", &bind_silu_mul, unlocked);
    m.def("sets", &sets, nb::rv_policy::reference);
}
