// A call of the public API by its operation.
#pragma once

#include <tessera/api/flash_attention.hpp>

namespace tessera::support {

inline status call(flash_op op, const flash_attention_args& args,
                   const flash_attention_options& options, const context& where) {
  switch (op) {
    case flash_op::flash_attention:
      return flash_attention(args, options, where);
    case flash_op::attention:
      return attention(args, options, where);
    case flash_op::scaled_dot_product_attention:
      return scaled_dot_product_attention(args, options, where);
  }
  return {status_code::invalid_argument, "op: is not an operation"};
}

}  // namespace tessera::support
