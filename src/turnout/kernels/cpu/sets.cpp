// Which kernels were built and which of them this CPU can run. Compiled for any CPU, as all but the kernels is.

#include "sets.h"

namespace turnout {

namespace portable {
extern const KernelSet set;
}

#if defined(__x86_64__)
namespace avx2 {
extern const KernelSet set;
}
namespace avx512 {
extern const KernelSet set;
}

namespace {

const KernelSet avx512_bf16{"avx512_bf16", linear, adapted_linear, attention, rms_norm, rope, silu_mul, write_rows};

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace
#endif

std::vector<const KernelSet*> sets() {
    std::vector<const KernelSet*> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (has_avx512_bf16()) found.push_back(&avx512_bf16);
    if (has_avx512()) found.push_back(&avx512::set);
    if (has_avx2()) found.push_back(&avx2::set);
#endif
    found.push_back(&portable::set);
    return found;
}

}  // namespace turnout
