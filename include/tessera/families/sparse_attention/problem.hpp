// What is asked of sparse attention at run time: dtypes, sizes and options, no pointers. Plain
// data.
#pragma once

#include <cstdint>

#include <tessera/families/sparse_attention/block_selection_args.hpp>
#include <tessera/families/sparse_attention/block_selection_options.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>
#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Attention to blocks of keys that a mask shows.
enum class blocksparse_op : std::uint8_t { blocksparse_attention };
enum class blocksparse_backward_op : std::uint8_t { blocksparse_attention_backward };

/// A call of one of them without its memory. The options are those of the forward call.
using blocksparse_problem =
    basic_problem<blocksparse_op, blocksparse_attention_args, blocksparse_attention_options>;
using blocksparse_backward_problem =
    basic_problem<blocksparse_backward_op, blocksparse_attention_backward_args,
                  blocksparse_attention_options>;

/// Attention to selected blocks, means of blocks and a window.
enum class native_sparse_op : std::uint8_t { native_sparse_attention };
enum class native_sparse_backward_op : std::uint8_t { native_sparse_attention_backward };

using native_sparse_problem =
    basic_problem<native_sparse_op, native_sparse_attention_args, native_sparse_attention_options>;
using native_sparse_backward_problem =
    basic_problem<native_sparse_backward_op, native_sparse_attention_backward_args,
                  native_sparse_attention_options>;

/// The blocks that tokens attend to, and no attention.
enum class block_selection_op : std::uint8_t { block_selection };

using block_selection_problem =
    basic_problem<block_selection_op, block_selection_args, block_selection_options>;

/// See spec/problem_of.hpp.
blocksparse_problem problem_type(const blocksparse_attention_args&);
inline bool rows_are_unaligned(const blocksparse_attention_args& args) noexcept {
  return are_unaligned(args.q, args.k, args.v);
}
blocksparse_backward_problem problem_type(const blocksparse_attention_backward_args&);
inline bool rows_are_unaligned(const blocksparse_attention_backward_args& args) noexcept {
  return are_unaligned(args.q, args.k, args.v, args.out, args.d_out);
}
native_sparse_problem problem_type(const native_sparse_attention_args&);
inline bool rows_are_unaligned(const native_sparse_attention_args& args) noexcept {
  return are_unaligned(args.q, args.k, args.v);
}
native_sparse_backward_problem problem_type(const native_sparse_attention_backward_args&);
inline bool rows_are_unaligned(const native_sparse_attention_backward_args& args) noexcept {
  return are_unaligned(args.q, args.k, args.v);
}
block_selection_problem problem_type(const block_selection_args&);
inline bool rows_are_unaligned(const block_selection_args& args) noexcept {
  return are_unaligned(args.q, args.k);
}

}  // namespace tessera
