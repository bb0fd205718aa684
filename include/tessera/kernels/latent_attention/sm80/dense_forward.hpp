// Expanded latents on the matrix unit: keys and values of all heads become tensors in the
// workspace, of the latents' own type, to which the dense kernels attend.
//
//   keys = [ckv w_kc, k_pe]; values = ckv w_vc; queries = [q, q_pe], if they do not lie so already
//
// `Dense` is whose kernels: `attention_row` and `product_row`, and the entry points of both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Tensors of 16-bit elements in the workspace, [entry][token][head], as wide as the dense kernels
/// read them.
struct dense_operands {
  std::uint16_t* q = nullptr;  ///< null: q lies in memory as it is read
  std::uint16_t* k = nullptr;
  std::uint16_t* v = nullptr;
};

inline constexpr int join_threads = 256;

/// Elements that are copied together where rows are aligned.
inline constexpr int joined_together = 8;

/// Rows that are joined from columns of one tensor and another, and zeros.
struct joined_rows {
  latent_rows first{}, second{};
  std::int64_t first_columns = 0;  ///< 0: they are in place already
  std::int64_t second_begin = 0;   ///< where columns of `second` go
  std::int64_t second_columns = 0;
  std::int64_t entries = 0, length = 0, heads = 0;
  std::uint16_t* to = nullptr;

  /// Whether eight elements side by side are of one tensor and start at a multiple of 16 bytes.
  bool are_aligned() const {
    const auto starts_aligned = [](const latent_rows& of) {
      return reinterpret_cast<std::uintptr_t>(of.data) % 16 == 0 &&
             (of.entry | of.token | of.head) % joined_together == 0;
    };
    return (first_columns == 0 || starts_aligned(first)) && starts_aligned(second) &&
           (first_columns | second_begin | second_columns) % joined_together == 0;
  }
};

/// A thread for each `Together` elements that are written.
template <int Width, int Together>
__global__ void __launch_bounds__(join_threads)
    join_rows(const __grid_constant__ joined_rows args) {
  struct alignas(2 * Together) elements {
    std::uint16_t at[Together];
  };
  const auto pieces =
      static_cast<unsigned>(args.first_columns + Width - args.second_begin) / Together;
  const auto heads = static_cast<unsigned>(args.heads);
  for (std::int64_t line = blockIdx.x; line < args.entries * args.length; line += gridDim.x) {
    const std::int64_t entry = line / args.length, token = line - entry * args.length;
    for (unsigned item = threadIdx.x; item < heads * pieces; item += join_threads) {
      const unsigned head = item / pieces;
      const std::int64_t column = args.second_begin - args.first_columns +
                                  static_cast<std::int64_t>(item - head * pieces) * Together;
      const std::int64_t behind = column - args.second_begin;
      const latent_rows& from = behind < 0 ? args.first : args.second;
      elements copied{};
      if (behind < args.second_columns) {
        copied = *reinterpret_cast<const elements*>(static_cast<const std::uint16_t*>(from.data) +
                                                    from.at(entry, token, head) +
                                                    (behind < 0 ? column : behind));
      }
      *reinterpret_cast<elements*>(args.to + (line * args.heads + head) * Width + column) = copied;
    }
  }
}

template <class Dense>
class dense_forward {
  static constexpr int width = widest_key, value = dense_value;
  using args_type = latent_attention_kernel_args;

 public:
  dense_forward(const args_type& args, int multiprocessors, std::byte* workspace,
                const Dense& dense = {})
      : args_(args), dense_(dense), parts_(workspace) {
    const std::int64_t tokens = args.entries * args.length;
    if (!queries_lie_joined()) parts_.take(to_.q, tokens * args.heads * width);
    // Of whole keys: plans do not know yet how rope parts will lie. In the order of their weights.
    const bool keys_first = !lies_behind(args.w_kc, args.w_vc);
    if (keys_first) parts_.take(to_.k, tokens * args.kv_heads * width);
    parts_.take(to_.v, tokens * args.kv_heads * value);
    if (!keys_first) parts_.take(to_.k, tokens * args.kv_heads * width);
    attention_bytes_ = Dense::attention_bytes(attention_args(), multiprocessors);
    parts_.take(of_attention_, static_cast<std::int64_t>(attention_bytes_));
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    std::vector<prim::cuda::kernel_entry> all{cuda::entry_of(&join_rows<width, joined_together>),
                                              cuda::entry_of(&join_rows<width, 1>)};
    for (const auto& entry : Dense::entries()) all.push_back(entry);
    return all;
  }

  status launch(const launch_context& context) const {
    if (args_.entries == 0 || args_.length == 0) return {};
    const auto stream = static_cast<cudaStream_t>(context.stream);
    if (status done = make_keys_and_values(context); !done) return done;
    if (args_.nope < key_columns()) {
      latent_rows shared = args_.k_pe;
      shared.head = 0;
      if (status done = join({.second = shared,
                              .second_begin = args_.nope,
                              .second_columns = args_.rope,
                              .heads = args_.kv_heads,
                              .to = to_.k},
                             stream);
          !done) {
        return done;
      }
    }
    if (to_.q != nullptr) {
      latent_rows rope = args_.q_pe;
      if (args_.shared_rope) rope.head = 0;
      if (status done = join({.first = args_.q,
                              .second = rope,
                              .first_columns = args_.nope,
                              .second_begin = args_.nope,
                              .second_columns = args_.rope,
                              .heads = args_.heads,
                              .to = to_.q},
                             stream);
          !done) {
        return done;
      }
    }
    launch_context of_attention = context;
    of_attention.workspace = of_attention_;
    of_attention.workspace_bytes = attention_bytes_;
    return dense_.attend(attention_args(), of_attention);
  }

 private:
  /// The last columns of keys that the attention row takes from a tensor of their own.
  static constexpr int tail_columns = [] {
    if constexpr (requires { Dense::attention_row::tail_columns; }) {
      return Dense::attention_row::tail_columns;
    }
    return 0;
  }();
  /// Rope parts are read where they lie, by all heads: the copy unit takes them as the tail.
  bool ropes_stay_apart() const {
    const latent_rows& rope = args_.k_pe;
    return tail_columns > 0 && args_.nope == width - tail_columns && args_.rope > 0 &&
           args_.rope % joined_together == 0 &&
           reinterpret_cast<std::uintptr_t>(rope.data) % 16 == 0 && rope.token > 0 &&
           (rope.entry > 0 || args_.entries == 1) &&
           (rope.entry | rope.token) % joined_together == 0;
  }
  /// Of a row of `to_.k`.
  std::int64_t key_columns() const { return ropes_stay_apart() ? width - tail_columns : width; }

  /// Rows of q are as wide as they are read, at multiples of 16 bytes, rope parts included.
  bool queries_lie_joined() const {
    const auto* const begin = static_cast<const std::byte*>(args_.q.data);
    const bool joined = args_.rope == 0 || args_.q_pe.data == begin + args_.nope * 2;
    const auto strides = args_.q.entry | args_.q.token | args_.q.head;
    return args_.nope + args_.rope == width && joined && !args_.shared_rope &&
           reinterpret_cast<std::uintptr_t>(begin) % 16 == 0 && strides % 8 == 0;
  }

  status join(joined_rows rows, cudaStream_t stream) const {
    rows.entries = args_.entries;
    rows.length = args_.length;
    void (*const kernel)(joined_rows) =
        rows.are_aligned() ? &join_rows<width, joined_together> : &join_rows<width, 1>;
    return cuda::launched(prim::cuda::launch_kernel(
        kernel, cuda::grid_of(rows.entries * rows.length), join_threads, 0, stream, false, rows));
  }

  /// Whether the weights `of` lie behind `others`.
  static bool lies_behind(const latent_rows& of, const latent_rows& others) {
    return reinterpret_cast<std::uintptr_t>(of.data) >
           reinterpret_cast<std::uintptr_t>(others.data);
  }

  /// Two groups of one product where they are alike and few: each alone would leave multiprocessors
  /// without a tile.
  status make_keys_and_values(const launch_context& context) const {
    constexpr std::uintptr_t most_bytes = std::uintptr_t{1} << 40;  // that the copy unit goes
    constexpr std::int64_t tile = 128 * 256;
    const bool few = args_.entries * args_.length * args_.kv_heads * value <=
                     std::int64_t{2} * tile * context.threads;
    const bool keys_first = !lies_behind(args_.w_kc, args_.w_vc);
    const latent_rows &first = keys_first ? args_.w_kc : args_.w_vc,
                      &second = keys_first ? args_.w_vc : args_.w_kc;
    const std::uintptr_t bytes = reinterpret_cast<std::uintptr_t>(second.data) -
                                 reinterpret_cast<std::uintptr_t>(first.data);
    const bool alike = args_.nope == value && key_columns() == value && first.head == value &&
                       second.head == value && first.token == second.token;
    if (few && alike && bytes > 0 && bytes % 16 == 0 && bytes < most_bytes) {
      std::uint16_t* const to = keys_first ? to_.k : to_.v;
      return expand(first, value, to, value, context,
                    {.groups = 2,
                     .weights = static_cast<std::int64_t>(bytes / 2),
                     .to = (keys_first ? to_.v : to_.k) - to});
    }
    if (status done = expand(args_.w_kc, args_.nope, to_.k, key_columns(), context); !done) {
      return done;
    }
    return expand(args_.w_vc, value, to_.v, value, context);
  }

  /// Weights of whose heads columns follow each other, and results, so many elements apart.
  struct alike_groups {
    std::int64_t groups = 1;
    std::int64_t weights = 0, to = 0;
  };
  /// Latents times the weights of each head, rows of `to` as wide as `stride`. Entries whose tokens
  /// follow each other are one product, and heads whose columns do.
  status expand(const latent_rows& weights, std::int64_t columns, std::uint16_t* to,
                std::int64_t stride, const launch_context& context,
                const alike_groups& alike = {}) const {
    const bool together = args_.entries == 1 || args_.ckv.entry == args_.length * args_.ckv.token;
    const std::int64_t products = together ? 1 : args_.entries;
    const bool side_by_side = weights.head == columns && stride == columns;
    for (std::int64_t entry = 0; entry < products; ++entry) {
      grouped_matmul_kernel_args product;
      product.lhs = {.data = static_cast<std::uint16_t*>(args_.ckv.data) + args_.ckv.at(entry, 0),
                     .type = args_.ckv.type,
                     .row = args_.ckv.token};
      product.rhs = {
          .data = weights.data, .type = weights.type, .group = weights.head, .row = weights.token};
      product.out = {.data = to + entry * args_.length * args_.kv_heads * stride,
                     .type = args_.ckv.type,
                     .group = stride,
                     .row = args_.kv_heads * stride};
      product.groups = side_by_side ? 1 : args_.kv_heads;
      if (alike.groups > 1) {
        product.groups = alike.groups;
        product.rhs.group = alike.weights;
        product.out.group = alike.to;
      }
      product.m = together ? args_.entries * args_.length : args_.length;
      product.n = side_by_side ? args_.kv_heads * columns : columns;
      product.k = args_.latent;
      if (status done = Dense::multiply(product, context); !done) return done;
    }
    return {};
  }

  attention_kernel_args attention_args() const {
    const auto rows_of = [&](std::int64_t heads, std::int64_t columns) {
      return row_strides{
          .batch = args_.length * heads * columns, .row = heads * columns, .head = columns};
    };
    attention_kernel_args dense;
    dense.q = to_.q != nullptr ? to_.q : args_.q.data;
    dense.k = to_.k;
    dense.v = to_.v;
    dense.out = args_.out.data;
    dense.q_strides = queries_lie_joined() ? row_strides{args_.q.entry, args_.q.token, args_.q.head}
                                           : rows_of(args_.heads, width);
    dense.k_strides = rows_of(args_.kv_heads, key_columns());
    if constexpr (tail_columns > 0) {
      const latent_rows& rope = args_.k_pe;
      constexpr int begin = width - tail_columns;
      dense.k_tail = {.data = to_.k + begin, .strides = dense.k_strides, .columns = tail_columns};
      if (ropes_stay_apart()) {
        dense.k_tail = {.data = rope.data,
                        .strides = {.batch = rope.entry, .row = rope.token},
                        .columns = static_cast<int>(args_.rope)};
      }
    }
    dense.v_strides = rows_of(args_.kv_heads, value);
    dense.out_strides = {args_.out.entry, args_.out.token, args_.out.head};
    dense.lse = args_.lse;
    dense.sinks = args_.sinks;
    dense.sink_head_stride = args_.sink_head_stride;
    dense.sink_stride = args_.sink_stride;
    dense.sink_count = static_cast<int>(args_.sink_count);
    dense.batch = args_.entries;
    dense.q_len = dense.kv_len = args_.length;
    dense.q_heads = static_cast<int>(args_.heads);
    dense.kv_heads = static_cast<int>(args_.kv_heads);
    dense.head_dim = width;
    dense.v_head_dim = value;
    dense.softmax_scale = args_.softmax_scale;
    dense.causal = args_.causal;
    dense.window_left = args_.window_left;
    dense.window_right = args_.window_right;
    dense.soft_cap = args_.soft_cap;
    return dense;
  }

  args_type args_;
  Dense dense_;
  cuda::workspace_parts parts_;
  dense_operands to_{};
  std::byte* of_attention_ = nullptr;
  std::size_t attention_bytes_ = 0;
};

}  // namespace tessera::kernels::latent_attention::sm80
