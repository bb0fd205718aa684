// A row compiled: its name, its config and its entry points. Plain data, signatures only, so that
// the registry is built without any kernel header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/row_resources.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Bytes of scratch memory that `launch` needs for these arguments and this many threads.
using attention_workspace_function = std::size_t (*)(const attention_kernel_args&, int threads);

/// Runs the kernel. The arguments are valid (see `lower`); refuses only a workspace that is too
/// small, and then leaves every output untouched.
using attention_launch_function = status (*)(const attention_kernel_args&, const launch_context&);

/// Readies the current device for launches, without memory or work on a stream: refuses a device
/// that the row holds no code for, and raises the kernels' limits of shared memory.
using flash_prepare_function = status (*)();

/// Writes the bits of the arguments' dropout to a [B, Hq, Sq, Sk] mask of u8 in device memory, 1:
/// kept.
using flash_dropout_mask_function = status (*)(const tensor_view& mask,
                                               const attention_kernel_args&, void* stream);

/// One entry of the registry.
struct attention_instance {
  std::string_view name{};    ///< name_of(config): compared, never parsed
  attention_config config{};  ///< resolved
  attention_workspace_function workspace_bytes = nullptr;
  attention_launch_function launch = nullptr;
  flash_prepare_function prepare = nullptr;  ///< null for CPU rows
  /// Null for CPU rows, and for those without dropout.
  flash_dropout_mask_function write_dropout_mask = nullptr;
  float compile_seconds = 0;       ///< measured when the table was last costed; 0 = not measured
  std::uint32_t object_bytes = 0;  ///< code and constants, measured likewise
  row_properties properties{};
  row_resources resources{};
};

}  // namespace tessera
