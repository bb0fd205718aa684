// Header path of every family on NVIDIA GPUs, for units that nvcc compiles.
#pragma once

#include <tessera/kernels/flash_attention/sm80_direct.hpp>
