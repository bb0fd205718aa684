// Which tensors a mean pooling call has, and whether their dtypes and shapes fit together. Looks at
// no pointer and no stride, so that a problem without tensors is checked by the same text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/tensor_checks.hpp>

namespace tessera::checks {

/// Reads sizes off the tokens and checks every other tensor against them.
class mean_pooling_shapes {
 public:
  /// Success fills the sizes of `lowered`. The number of means of packed chunks follows from the
  /// offsets and is checked with them.
  static bool check(mean_pooling_op op, const mean_pooling_args& args,
                    const mean_pooling_options& options, mean_pooling_kernel_args& lowered,
                    status& failure) {
    mean_pooling_shapes shapes{op, args, options, failure};
    if (!shapes.is_operation() || !shapes.are_present() || !shapes.tokens() || !shapes.offsets() ||
        !shapes.means() || !shapes.weights()) {
      return false;
    }
    lowered.sequences = shapes.sequences_;
    lowered.tokens = shapes.length_;
    lowered.chunk = has_chunks(op)
                        ? std::min(options.chunk_size, std::max<std::int64_t>(shapes.length_, 1))
                        : 0;
    lowered.heads = shapes.heads_;
    lowered.columns = shapes.columns_;
    return true;
  }

 private:
  mean_pooling_shapes(mean_pooling_op op, const mean_pooling_args& args,
                      const mean_pooling_options& options, status& failure)
      : op_(op),
        args_(args),
        options_(options),
        failure_(failure),
        backward_(is_backward(op)),
        chunks_(has_chunks(op)) {}

  template <class... Parts>
  bool no(const Parts&... parts) const {
    return refuse(failure_, parts...);
  }

  std::string_view tokens_name() const { return backward_ ? "d_x" : "x"; }
  std::string_view means_name() const { return backward_ ? "d_out" : "out"; }
  const tensor_view& tokens_view() const { return backward_ ? args_.d_x : args_.x; }
  const tensor_view& means_view() const { return backward_ ? args_.d_out : args_.out; }

  bool is_operation() const {
    if (op_ > mean_pooling_op::mean_pooling_chunks_backward) {
      return no("op: is ", static_cast<int>(op_), ", the last operation is ",
                static_cast<int>(mean_pooling_op::mean_pooling_chunks_backward));
    }
    constexpr std::int64_t unset = mean_pooling_options{}.chunk_size;
    if (!chunks_ && options_.chunk_size != unset) {
      return no("chunk_size: is ", options_.chunk_size, ", ", name_of(op_),
                " has no chunks; mean_pooling_chunks has");
    }
    return options_.chunk_size >= 1 ||
           no("chunk_size: is ", options_.chunk_size, ", must be at least 1");
  }

  bool are_present() const {
    const auto needed = [&](std::string_view name, const tensor_view& view) {
      return view.present() || no(name, ": is absent, ", name_of(op_), " needs ", tokens_name(),
                                  " and ", means_name());
    };
    const auto foreign = [&](std::string_view name, const tensor_view& view) {
      return !view.present() || no(name, ": is given, ", name_of(op_), " has no such tensor");
    };
    if (!needed(tokens_name(), tokens_view()) || !needed(means_name(), means_view())) return false;
    if (backward_) return foreign("out", args_.out);
    return foreign("d_out", args_.d_out) && foreign("d_x", args_.d_x);
  }

  /// x, or d_x: the sizes of everything else.
  bool tokens() {
    const tensor_view& view = tokens_view();
    const bool packed = args_.cu_seqlens.present();
    const int rank = chunks_ ? 4 : packed ? 2 : 3;
    if (!is_floating_16_or_32(view.type)) {
      return no(tokens_name(), ": dtype is ", name_of(view.type), ", must be f32, f16 or bf16");
    }
    if (view.rank != rank) {
      return no(tokens_name(), ": rank is ", static_cast<int>(view.rank), ", ", name_of(op_),
                " of ", packed ? "packed" : "dense", " tensors has ", rank,
                chunks_  ? " [B,T,H,D]"
                : packed ? " [total,D]"
                         : " [B,T,D]");
    }
    if (!has_rank(tokens_name(), view, rank, failure_)) return false;
    const std::size_t token_axis = chunks_ || !packed ? 1 : 0;
    entries_ = token_axis == 1 ? view.extent[0] : 1;
    length_ = view.extent[token_axis];
    heads_ = chunks_ ? view.extent[2] : 1;
    columns_ = view.extent[static_cast<std::size_t>(rank - 1)];
    sequences_ = entries_;
    if (packed && chunks_ && entries_ != 1) {
      return no(tokens_name(), ": batch is ", entries_, ", packed tensors have 1");
    }
    if (!backward_ || !args_.x.present()) return true;
    if (args_.x.type != view.type) {
      return no("x: dtype is ", name_of(args_.x.type), ", d_x has ", name_of(view.type));
    }
    std::array<axis_rule, max_rank> axes{};
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
      axes[axis] = {axis == token_axis ? "length" : "extent", view.extent[axis], "d_x"};
    }
    return has_shape("x", args_.x, std::span(axes).first(static_cast<std::size_t>(rank)), failure_);
  }

  bool offsets() {
    const tensor_view& view = args_.cu_seqlens;
    if (!view.present()) return true;
    if (view.type != dtype::i32) {
      return no("cu_seqlens: dtype is ", name_of(view.type), ", must be i32");
    }
    if (!has_rank("cu_seqlens", view, 1, failure_)) return false;
    sequences_ = view.extent[0] - 1;
    return sequences_ >= 0 ||
           no("cu_seqlens: length is ", view.extent[0], ", must be at least 1 (sequences + 1)");
  }

  /// out, or d_out: one row for each mean.
  bool means() const {
    const tensor_view& view = means_view();
    const bool packed = args_.cu_seqlens.present();
    if (view.type != tokens_view().type) {
      return no(means_name(), ": dtype is ", name_of(view.type), ", ", tokens_name(), " has ",
                name_of(tokens_view().type));
    }
    const std::array<axis_rule, 4> chunked{
        {{"batch", entries_, tokens_name()},
         {"number of chunks", packed ? 0 : chunk_count(length_), tokens_name(),
          packed ? extent_rule::one_or_at_least : extent_rule::exact},
         {"heads", heads_, tokens_name()},
         {"columns", columns_, tokens_name()}}};
    if (chunks_) return has_shape(means_name(), view, chunked, failure_);
    const std::array<axis_rule, 2> whole{
        {{packed ? "sequences" : "batch", sequences_, packed ? "cu_seqlens" : tokens_name()},
         {"columns", columns_, tokens_name()}}};
    return has_shape(means_name(), view, whole, failure_);
  }

  bool weights() const {
    const tensor_view& mask = args_.mask;
    if (!mask.present()) return true;
    if (chunks_) return no("mask: is given, ", name_of(op_), " has no mask");
    if (args_.cu_seqlens.present()) {
      return no(
          "mask: is given with cu_seqlens; a mask belongs to dense tensors, packed ones have "
          "no padding");
    }
    if (!is_floating_16_or_32(mask.type) && mask.type != dtype::u8) {
      return no("mask: dtype is ", name_of(mask.type), ", must be f32, f16, bf16 or u8");
    }
    const std::array<axis_rule, 2> axes{
        {{"batch", entries_, tokens_name()}, {"length", length_, tokens_name()}}};
    return has_shape("mask", mask, axes, failure_);
  }

  std::int64_t chunk_count(std::int64_t tokens) const {
    return tokens / options_.chunk_size + (tokens % options_.chunk_size != 0 ? 1 : 0);
  }

  mean_pooling_op op_;
  const mean_pooling_args& args_;
  const mean_pooling_options& options_;
  status& failure_;
  bool backward_;
  bool chunks_;
  std::int64_t entries_ = 0, sequences_ = 0, length_ = 0, heads_ = 0, columns_ = 0;
};

}  // namespace tessera::checks
