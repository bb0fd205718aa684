// What the header paths of all back ends read off a call: which operation it is, and whether an
// epilogue may follow.
#pragma once

#include <type_traits>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// With group_sizes it is an operation of groups, with d_out the gradients.
constexpr grouped_matmul_op direct_op(const grouped_matmul_args& args) noexcept {
  using enum grouped_matmul_op;
  const bool backward = args.d_out.present();
  if (args.group_sizes.present()) return backward ? grouped_matmul_backward : grouped_matmul;
  return backward ? matmul_backward : matmul;
}
constexpr scaled_matmul_op direct_op(const scaled_matmul_args& args) noexcept {
  return args.group_sizes.present() ? scaled_matmul_op::scaled_grouped_matmul
                                    : scaled_matmul_op::scaled_matmul;
}

template <class Epilogue>
status check_epilogue(bool backward) {
  if (!backward || std::is_same_v<Epilogue, no_epilogue>) return {};
  return {status_code::invalid_argument,
          "d_out: is given, the gradients of a product take no epilogue"};
}

}  // namespace tessera
