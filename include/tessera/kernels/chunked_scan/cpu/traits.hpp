// What follows from the config of a row on the CPU, and the assertion that stops an illegal or
// mis-compiled row.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Compile-time shape of a row's kernel.
template <class Kernel>
struct traits {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr chunked_scan_config config = Kernel::config;
  using isa_type = typename isa::of<config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  using element = element_t<config.type>;

  static constexpr int width = vec::width;
  /// Registers of value channels that are stepped together: as many chains of additions as hide
  /// the latency of one. Backward, which has three sums for each key, two.
  static constexpr int registers = config.pass == chunked_scan_pass::forward ? 4 : 2;
  static constexpr std::int64_t block = registers * width;  ///< their value channels
};

inline chunked_scan_decay decay_of(const chunked_scan_kernel_args& args) noexcept {
  const bool keys = args.g.data != nullptr || args.gk.data != nullptr || args.g_gamma != nullptr;
  return tessera::decay_of(keys, args.gv.data != nullptr);
}

/// Which state a token reads.
enum class state_read : std::uint8_t {
  none,    ///< states alone are wanted
  after,   ///< the one that has taken it in
  before,  ///< the one it found; the token itself comes through the bonus
};

/// Calls `run(decay, read)` with the kinds of a launch as constants.
template <class Run>
[[gnu::always_inline]] inline void with_kinds_of(const chunked_scan_kernel_args& args,
                                                 const Run& run) {
  using enum chunked_scan_decay;
  constexpr std::integral_constant<state_read, state_read::after> after{};
  if (args.u.data != nullptr) {
    return run(std::integral_constant<chunked_scan_decay, keys>{},
               std::integral_constant<state_read, state_read::before>{});
  }
  switch (decay_of(args)) {
    case none:
      return run(std::integral_constant<chunked_scan_decay, none>{}, after);
    case keys:
      return run(std::integral_constant<chunked_scan_decay, keys>{}, after);
    case keys_and_values:
      return run(std::integral_constant<chunked_scan_decay, keys_and_values>{}, after);
  }
}

constexpr std::int64_t rounded_up(std::int64_t count, std::int64_t to) noexcept {
  return (count + to - 1) / to * to;
}

}  // namespace tessera::kernels::chunked_scan::cpu
