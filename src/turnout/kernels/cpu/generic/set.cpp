// The kernels for any instruction set, compiled once for each with its own flags and name, TURNOUT_SET.

#include "attention.h"
#include "elementwise.h"
#include "linear.h"
#include "lora.h"

#define TURNOUT_TEXT(name) #name
#define TURNOUT_NAME(name) TURNOUT_TEXT(name)

namespace turnout::TURNOUT_SET {

extern const KernelSet set;
const KernelSet set{TURNOUT_NAME(TURNOUT_SET), linear, adapted_linear, attention, rms_norm, rope, silu_mul, write_rows};

}  // namespace turnout::TURNOUT_SET
