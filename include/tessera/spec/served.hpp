// What a build can serve, answered when compiling. tessera_add_kernels(my_kernels ...) generates
// the header <tessera/builds/my_kernels.hpp>, which lists the rows of that build and answers with
// these functions:
//
//   #include <tessera/builds/my_kernels.hpp>
//   constexpr tessera::flash_problem decode{
//       .tensors = {.q = tessera::shaped(tessera::dtype::bf16, {1, 1, 32, 128}),
//                   .k = tessera::shaped(tessera::dtype::bf16, {1, 8192, 8, 128}),
//                   .v = tessera::shaped(tessera::dtype::bf16, {1, 8192, 8, 128})},
//       .options = {.causal = true}};
//   static_assert(my_kernels::serves(decode));
//   static_assert(my_kernels::serves(decode, tessera::backend::cpu_avx2));
#pragma once

#include <array>
#include <cstddef>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

/// True if a device whose most specialised backend is `device` can run rows of `target`.
constexpr bool can_run(backend device, backend target) noexcept {
  return is_cpu(device) == is_cpu(target) && target <= device;
}

/// The first row that runs the problem, or `Rows`. Rows of another family than the problem's run
/// nothing.
template <class Config, std::size_t Rows, class Problem, class Condition>
constexpr std::size_t first_row(const std::array<Config, Rows>& rows, const Problem& problem,
                                const Condition& counts) noexcept {
  if constexpr (fits_problem<Config, Problem>) {
    for (std::size_t index = 0; index < Rows; ++index) {
      if (counts(rows[index]) && runs(rows[index], problem)) return index;
    }
  }
  return Rows;
}

/// True if a row of the table runs the problem on some device.
template <class Config, std::size_t Rows, class Problem>
constexpr bool any_serves(const std::array<Config, Rows>& rows, const Problem& problem) noexcept {
  return first_row(rows, problem, [](const Config&) { return true; }) != Rows;
}

/// True if a row of the table runs the problem on devices of that backend.
template <class Config, std::size_t Rows, class Problem>
constexpr bool any_serves(const std::array<Config, Rows>& rows, const Problem& problem,
                          backend device) noexcept {
  return first_row(rows, problem, [=](const Config& row) { return can_run(device, row.target); }) !=
         Rows;
}

}  // namespace tessera
