// The Python module: addresses come in as integers, are checked against their sizes, and the kernels run without
// the interpreter's lock.

#include <nanobind/nanobind.h>

#include "kernels.h"

namespace nb = nanobind;
using namespace turnout;

namespace {

template <typename T>
T* pointer(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

bool supported() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("fma");
}

void bind_linear(std::uintptr_t x, std::uintptr_t panels, std::uintptr_t bias, std::uintptr_t y, std::int64_t rows,
                 std::int64_t inputs, std::int64_t outputs, bool float_output) {
    linear({pointer<const bfloat16>(x), pointer<const bfloat16>(panels), pointer<const float>(bias), pointer<void>(y),
            rows, inputs, outputs, float_output});
}

}  // namespace

NB_MODULE(_cpu, m) {
    const nb::call_guard<nb::gil_scoped_release> unlocked;
    m.def("supported", &supported);
    m.def("linear", &bind_linear, unlocked);
}
