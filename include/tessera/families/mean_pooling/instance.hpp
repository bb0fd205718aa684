// A mean pooling row compiled: its name, its config and its entry points. Plain data, signatures
// only, so that the registry is built without any kernel header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/row_resources.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Bytes of scratch memory that `launch` needs for these arguments and this many threads.
using mean_pooling_workspace_function = std::size_t (*)(const mean_pooling_kernel_args&,
                                                        int threads);

/// Runs the kernel. The arguments are valid (see `lower`); refuses only a workspace that is too
/// small, and then leaves every output untouched.
using mean_pooling_launch_function = status (*)(const mean_pooling_kernel_args&,
                                                const launch_context&);

/// Readies the current device for launches, without memory or work on a stream; refuses a device
/// that the row holds no code for.
using mean_pooling_prepare_function = status (*)();

/// One entry of the registry.
struct mean_pooling_instance {
  std::string_view name;         ///< name_of(config): compared, never parsed
  mean_pooling_config config{};  ///< resolved
  mean_pooling_workspace_function workspace_bytes = nullptr;
  mean_pooling_launch_function launch = nullptr;
  mean_pooling_prepare_function prepare = nullptr;  ///< null for CPU rows
  float compile_seconds = 0;       ///< measured when the table was last costed; 0 = not measured
  std::uint32_t object_bytes = 0;  ///< code and constants, measured likewise
  row_properties properties{};
  row_resources resources{};
};

}  // namespace tessera
