// quantize, dequantize, prepack_quantized_weights and quantized_matmul with its gradients: one
// call, or plan once and run.
#pragma once

#include <tessera/api/quantized.hpp>
