// The kernels, for CPUs with AVX-512 BF16. Matrices are row-major bfloat16 unless said otherwise; nothing is checked.
#pragma once

#include <cstdint>

#include "simd.h"

namespace turnout {

// y = x @ weight.T + bias. `panels` is the weight as [outputs / 32][inputs / 2][32][2], padded with zeros; `bias` is
// float32, padded to whole panels, or null. x [rows, inputs]; y [rows, outputs], float32 or bfloat16.
struct Linear {
    const bfloat16* x;
    const bfloat16* panels;
    const float* bias;
    void* y;
    std::int64_t rows, inputs, outputs;
    bool float_output;
};
void linear(const Linear& call);

}  // namespace turnout
