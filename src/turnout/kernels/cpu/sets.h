// The instruction sets that kernels were built for.
#pragma once

#include <vector>

#include "kernels.h"

namespace turnout {

// Those that this CPU has, the fastest first; the last is for any CPU.
std::vector<const KernelSet*> sets();

}  // namespace turnout
