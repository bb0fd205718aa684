// A row compiled: its name, its config and its entry points. Plain data, the same type for every
// family, so that the registry is built without any kernel header and the chain of choosers knows
// no family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/row_resources.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// One entry of a registry. `config` and the kernel args of the functions are of the types of the
/// family, whose first part of `name` it is.
struct instance {
  std::string_view name{};    ///< compared, never parsed
  std::string_view family{};  ///< whose config and kernel args these are
  backend target = backend::cpu_generic;
  const void* config = nullptr;  ///< resolved; lives as long as the program

  /// Bytes of scratch memory that `launch` needs for these arguments and this many workers:
  /// threads, or the multiprocessors of a GPU.
  std::size_t (*workspace_bytes)(const void* kernel_args, int workers) = nullptr;
  /// Runs the kernel. The arguments are valid; refuses only a workspace that is too small, and then
  /// leaves every output untouched.
  status (*launch)(const void* kernel_args, const launch_context& where) = nullptr;
  /// Readies the current device for launches, without memory or work on a stream: refuses a device
  /// that the row holds no code for. Null for CPU rows.
  status (*prepare)() = nullptr;
  /// Side outputs that `launch` does not write. Null where there are none.
  status (*finish)(const void* args, const void* kernel_args,
                   const launch_context& where) = nullptr;

  /// Tells kernel args that bits must not depend on the batch, before workspace and launch. Null
  /// where they never do.
  void (*keep_batch_invariant)(void* kernel_args) = nullptr;

  float compile_seconds = 0;       ///< measured when the table was last costed; 0: not measured
  std::uint32_t object_bytes = 0;  ///< code and constants, measured likewise
  row_properties properties{};
  row_resources resources{};

  template <class Config>
  constexpr const Config& config_as() const noexcept {
    return *static_cast<const Config*>(config);
  }
};

/// The config of a row with its defaults filled in, at one address.
template <class Kernel>
inline constexpr auto resolved_config = resolved(Kernel::config);

/// What a row promises: `properties_of` of its config where the family has one (fits.hpp), else
/// everything.
template <class Config>
constexpr row_properties promises_of(const Config& config) noexcept {
  if constexpr (requires { properties_of(config); }) return properties_of(config);
  return {};
}

namespace kernels {

/// The entry points of a row on the CPU. `Launcher` is `kernels::<family>::cpu::launcher<Kernel>`;
/// kernels/cpu_entry_points.hpp defines them, the unit of the row instantiates them.
template <class Launcher>
struct cpu_entry_points {
  static std::size_t workspace_bytes(const void* kernel_args, int threads);
  static status launch(const void* kernel_args, const launch_context& where);
};

/// The same on GPUs, of `kernels::<family>::<target>::launcher<Kernel>`, defined in
/// kernels/cuda_entry_points.hpp.
template <class Launcher>
struct cuda_entry_points {
  static std::size_t workspace_bytes(const void* kernel_args, int multiprocessors);
  static status launch(const void* kernel_args, const launch_context& where);
  static status prepare();
};

/// The kernel args that a launch takes. Declared only.
template <class KernelArgs>
KernelArgs args_of_launch(status (*)(const KernelArgs&, const launch_context&));

/// Entry points that a family writes as functions of the args of its kernels.
template <auto WorkspaceBytes, auto Launch, auto Prepare = nullptr>
struct entry_functions {
  using args_type = decltype(args_of_launch(Launch));

  static std::size_t workspace_bytes(const void* kernel_args, int workers) {
    return WorkspaceBytes(*static_cast<const args_type*>(kernel_args), workers);
  }
  static status launch(const void* kernel_args, const launch_context& where) {
    return Launch(*static_cast<const args_type*>(kernel_args), where);
  }
  static constexpr auto prepare = Prepare;
};

}  // namespace kernels

/// A row of that config with these entry points.
template <class EntryPoints, class Config>
constexpr instance instance_of(std::string_view family, std::string_view name,
                               const Config& config) noexcept {
  instance row;
  row.name = name;
  row.family = family;
  row.target = config.target;
  row.config = &config;
  row.properties = promises_of(config);
  row.workspace_bytes = &EntryPoints::workspace_bytes;
  row.launch = &EntryPoints::launch;
  if constexpr (requires { EntryPoints::prepare; }) row.prepare = EntryPoints::prepare;
  return row;
}

/// How rows of a config become instances. Specialised in a family's row.hpp, which the generator
/// writes: entry points are named by declaration there, so that no kernel header is needed:
/// `template <class Kernel> static constexpr instance instance_for(std::string_view name)`.
template <class Config>
struct table_entry;

/// The row of `Kernel::config` under that name, whose kernel the program brings.
template <class Kernel>
constexpr instance row_of(std::string_view name) {
  using config_type = std::remove_cvref_t<decltype(Kernel::config)>;
  return table_entry<config_type>::template instance_for<Kernel>(name);
}

}  // namespace tessera
