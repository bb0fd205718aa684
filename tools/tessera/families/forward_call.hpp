// What a gradient takes from the forward call, computed where a file does not have it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <tessera/interop/safetensors.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "output_memory.hpp"

namespace tessera::tool {

/// The gradient of an operation has its name and "_backward";
/// both may be of different families; null where this build has none.
found_operation gradient_of(const operation& forward);
found_operation forward_of(const operation& gradient);

/// Whether a tensor that the gradient reads is an output of the forward call.
bool is_residual(const operation& gradient, std::size_t tensor);

/// Whether the gradient lacks nothing that it cannot do without: what else it takes of the forward
/// call spares it work, less than the forward call is.
bool does_without_residuals(owned_problem& gradient);

/// Carries out the forward call of a gradient on the CPU, on so many threads (0: what OpenMP would
/// use), with its tensors and options and those that only the file has, and gives the gradient
/// those of its tensors that are `wanted`. Fails with the library's refusal behind `path`.
void compute_residuals(owned_problem& gradient, std::span<const std::size_t> wanted,
                       const safetensors_file& file, output_memory& memory, const std::string& path,
                       int threads);

}  // namespace tessera::tool
