// Header paths on NVIDIA GPUs of the families that have one, for units that nvcc compiles.
#pragma once

#include <tessera/kernels/attention/sm80/direct.hpp>
#include <tessera/kernels/attention_backward/sm80/direct.hpp>
#include <tessera/kernels/grouped_matmul/sm80/direct.hpp>
#include <tessera/kernels/sparse_attention/sm80/direct.hpp>
