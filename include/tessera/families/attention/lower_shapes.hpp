// Which tensors an attention call has, and whether their dtypes and shapes fit together. Looks at
// no pointer and no stride, so that a problem without tensors is checked by the same text.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/tensor_checks.hpp>

namespace tessera::checks {

/// Reads sizes off the tensors and checks every other tensor against them.
class flash_shapes {
 public:
  /// Success fills the sizes of `lowered`. The options have been checked.
  static bool check(flash_op op, const flash_attention_args& args,
                    const flash_attention_options& options, attention_kernel_args& lowered,
                    status& failure) {
    flash_shapes shapes{op, args, options, failure};
    if (!shapes.are_present() || !shapes.fit_together() || !shapes.optional_inputs() ||
        !shapes.optional_outputs()) {
      return false;
    }
    lowered.batch = shapes.batch_;
    lowered.q_len = shapes.q_len_;
    lowered.kv_len = shapes.kv_len_;
    lowered.q_heads = static_cast<int>(shapes.q_heads_);
    lowered.kv_heads = static_cast<int>(shapes.kv_heads_);
    lowered.head_dim = static_cast<int>(shapes.head_dim_);
    lowered.v_head_dim = static_cast<int>(shapes.v_head_dim_);
    return true;
  }

 private:
  flash_shapes(flash_op op, const flash_attention_args& args,
               const flash_attention_options& options, status& failure)
      : op_(op), args_(args), options_(options), failure_(failure) {}

  template <class... Parts>
  bool no(const Parts&... parts) const {
    return refuse(failure_, parts...);
  }

  bool are_present() {
    const auto needed = [&](std::string_view name, const tensor_view& view) {
      return view.present() || no(name, ": is absent, ", name_of(op_), " needs q, k, v and out");
    };
    if (!needed("q", args_.q) || !needed("k", args_.k) || !needed("v", args_.v) ||
        !needed("out", args_.out)) {
      return false;
    }
    packed_ = args_.cu_seqlens_q.present();
    if (packed_ != args_.cu_seqlens_k.present()) {
      return no(packed_ ? "cu_seqlens_k" : "cu_seqlens_q", ": is absent, ",
                packed_ ? "cu_seqlens_q" : "cu_seqlens_k", " is given; packed tensors need both");
    }
    return true;
  }

  /// q, k, v and out: the sizes of everything else.
  bool fit_together() {
    const tensor_view& q = args_.q;
    const int rank = packed_ ? 3 : 4;
    if (!is_floating_16_or_32(q.type)) {
      return no("q: dtype is ", name_of(q.type), ", must be f32, f16 or bf16");
    }
    if (q.rank != rank) {
      return no("q: rank is ", static_cast<int>(q.rank), ", ", packed_ ? "packed" : "dense",
                " tensors have ", rank, packed_ ? " [Tq,Hq,D]" : " [B,Sq,Hq,D]");
    }
    for (const auto& [name, view] :
         {named{"k", &args_.k}, named{"v", &args_.v}, named{"out", &args_.out}}) {
      if (view->type != q.type) {
        return no(name, ": dtype is ", name_of(view->type), ", q has ", name_of(q.type));
      }
      if (view->rank != rank) {
        return no(name, ": rank is ", static_cast<int>(view->rank), ", q has ", rank);
      }
    }
    return read_sizes(packed_ ? 0 : 1) && sizes_in_range() && operands_match();
  }

  bool read_sizes(std::size_t row_axis) {
    const int rank = args_.q.rank;
    if (!has_rank("q", args_.q, rank, failure_) || !has_rank("k", args_.k, rank, failure_) ||
        !has_rank("v", args_.v, rank, failure_)) {
      return false;
    }
    batch_ = packed_ ? 0 : args_.q.extent[0];
    q_len_ = args_.q.extent[row_axis];
    kv_len_ = args_.k.extent[row_axis];
    q_heads_ = args_.q.extent[row_axis + 1];
    kv_heads_ = args_.k.extent[row_axis + 1];
    head_dim_ = args_.q.extent[row_axis + 2];
    v_head_dim_ = args_.v.extent[row_axis + 2];
    return true;
  }

  bool sizes_in_range() const {
    const auto in_range = [&](std::string_view name, std::string_view label, std::int64_t size,
                              std::int64_t most) {
      return (size >= 1 && size <= most) ||
             no(name, ": ", label, " is ", size, ", must be 1 to ", most);
    };
    constexpr std::int64_t most_heads = std::numeric_limits<int>::max();
    if (!in_range("q", "heads", q_heads_, most_heads) ||
        !in_range("k", "heads", kv_heads_, most_heads) ||
        !in_range("q", "head_dim", head_dim_, max_head_dim) ||
        !in_range("v", "head_dim", v_head_dim_, max_head_dim)) {
      return false;
    }
    return q_heads_ % kv_heads_ == 0 ||
           no("q: heads is ", q_heads_, ", not a multiple of the ", kv_heads_, " of k");
  }

  bool operands_match() const {
    if (op_ == flash_op::scaled_dot_product_attention && v_head_dim_ != head_dim_) {
      return no("v: head_dim is ", v_head_dim_, ", q has ", head_dim_, " and ", name_of(op_),
                " needs them equal");
    }
    return has_rows("k", args_.k, kv_len_, "k", kv_heads_, "k", head_dim_, "q") &&
           has_rows("v", args_.v, kv_len_, "k", kv_heads_, "k", v_head_dim_, "v") &&
           has_rows("out", args_.out, q_len_, "q", q_heads_, "q", v_head_dim_, "v");
  }

  /// [batch, rows, heads, head_dim], packed [rows, heads, head_dim].
  bool has_rows(std::string_view name, const tensor_view& view, std::int64_t rows,
                std::string_view rows_of, std::int64_t heads, std::string_view heads_of,
                std::int64_t head_dim, std::string_view head_dim_of) const {
    if (!packed_ && view.rank == 4 && view.extent[0] == batch_ && view.extent[1] == rows &&
        view.extent[2] == heads && view.extent[3] == head_dim) {
      return true;
    }
    const std::array<axis_rule, 4> axes{{{"batch", batch_, "q"},
                                         {"length", rows, rows_of},
                                         {"heads", heads, heads_of},
                                         {"head_dim", head_dim, head_dim_of}}};
    return has_shape(name, view, std::span(axes).subspan(packed_ ? 1 : 0), failure_);
  }

  bool optional_inputs() {
    if (packed_ && !offsets()) return false;
    return score_tensors() && segments() && sinks() && lengths();
  }

  bool offsets() {
    const auto is_offsets = [&](std::string_view name, const tensor_view& view) {
      if (view.type != dtype::i32) {
        return no(name, ": dtype is ", name_of(view.type), ", must be i32");
      }
      if (!has_rank(name, view, 1, failure_)) return false;
      return view.extent[0] >= 1 ||
             no(name, ": length is ", view.extent[0], ", must be at least 1 (sequences + 1)");
    };
    if (!is_offsets("cu_seqlens_q", args_.cu_seqlens_q) ||
        !is_offsets("cu_seqlens_k", args_.cu_seqlens_k)) {
      return false;
    }
    if (args_.cu_seqlens_k.extent[0] != args_.cu_seqlens_q.extent[0]) {
      return no("cu_seqlens_k: length is ", args_.cu_seqlens_k.extent[0], ", cu_seqlens_q has ",
                args_.cu_seqlens_q.extent[0]);
    }
    batch_ = args_.cu_seqlens_q.extent[0] - 1;
    return true;
  }

  /// bias_pre, bias_post and mask. Rows and keys of packed ones are compared with the longest
  /// sequence when the offsets are read.
  bool score_tensors() const {
    if (!args_.bias_pre.present() && !args_.bias_post.present() && !args_.mask.present()) {
      return true;
    }
    for (const auto& [name, view] :
         {named{"bias_pre", &args_.bias_pre}, named{"bias_post", &args_.bias_post}}) {
      if (view->present() && !is_floating_16_or_32(view->type)) {
        return no(name, ": dtype is ", name_of(view->type), ", must be f32, f16 or bf16");
      }
    }
    if (args_.mask.present() && args_.mask.type != dtype::u8) {
      return no("mask: dtype is ", name_of(args_.mask.type), ", must be u8");
    }
    const auto rows = packed_ ? extent_rule::one_or_at_least : extent_rule::one_or_exact;
    const std::array<axis_rule, 4> axes{
        {{"batch", batch_, packed_ ? "cu_seqlens_q" : "q", extent_rule::one_or_exact},
         {"heads", q_heads_, "q", extent_rule::one_or_exact},
         {"rows", packed_ ? 0 : q_len_, "q", rows},
         {"keys", packed_ ? 0 : kv_len_, "k", rows}}};
    for (const auto& [name, view] :
         {named{"bias_pre", &args_.bias_pre}, named{"bias_post", &args_.bias_post},
          named{"mask", &args_.mask}}) {
      if (view->present() && !has_shape(name, *view, axes, failure_)) return false;
    }
    return true;
  }

  bool segments() const {
    const bool of_q = args_.q_segment_ids.present();
    const bool of_k = args_.kv_segment_ids.present();
    if (!of_q && !of_k) return true;
    if (packed_) {
      return no(of_q ? "q" : "kv",
                "_segment_ids: is given with cu_seqlens_q; packed sequences "
                "are apart already, give segments to dense tensors");
    }
    if (!of_q) return no("kv_segment_ids: is given, q_segment_ids is absent");
    if (!of_k && q_len_ != kv_len_) {
      return no(
          "kv_segment_ids: is absent, and q_segment_ids serve for keys only where lengths "
          "are equal: q has ",
          q_len_, ", k has ", kv_len_);
    }
    return has_ids("q_segment_ids", args_.q_segment_ids, q_len_, "q") &&
           (!of_k || has_ids("kv_segment_ids", args_.kv_segment_ids, kv_len_, "k"));
  }

  bool has_ids(std::string_view name, const tensor_view& view, std::int64_t length,
               std::string_view owner) const {
    if (view.type != dtype::i32) {
      return no(name, ": dtype is ", name_of(view.type), ", must be i32");
    }
    const std::array<axis_rule, 2> axes{{{"batch", batch_, "q"}, {"length", length, owner}}};
    return has_shape(name, view, axes, failure_);
  }

  bool sinks() const {
    const tensor_view& sinks = args_.sinks;
    if (!sinks.present()) return true;
    if (op_ == flash_op::scaled_dot_product_attention) {
      return no("sinks: is given, ", name_of(op_), " has no sinks");
    }
    if (sinks.type != dtype::f32) {
      return no("sinks: dtype is ", name_of(sinks.type), ", must be f32");
    }
    if (!has_rank("sinks", sinks, 2, failure_)) return false;
    if (sinks.extent[0] != 1 && sinks.extent[0] != q_heads_) {
      return no("sinks: heads is ", sinks.extent[0], ", q has ", q_heads_, " (1 broadcasts)");
    }
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return sinks.extent[1] <= most ||
           no("sinks: number of sinks is ", sinks.extent[1], ", must be at most ", most);
  }

  bool lengths() const {
    if (!args_.seqlens_q.present() && !args_.seqlens_k.present()) return true;
    for (const auto& [name, view] :
         {named{"seqlens_q", &args_.seqlens_q}, named{"seqlens_k", &args_.seqlens_k}}) {
      if (!view->present()) continue;
      if (packed_) {
        return no(name,
                  ": is given with cu_seqlens_q; lengths belong to dense tensors, packed "
                  "ones have offsets");
      }
      if (view->type != dtype::i32) {
        return no(name, ": dtype is ", name_of(view->type), ", must be i32");
      }
      const std::array<axis_rule, 1> axes{{{"length", batch_, "the batch of q"}}};
      if (!has_shape(name, *view, axes, failure_)) return false;
    }
    return true;
  }

  bool optional_outputs() const { return statistics() && weights() && dropout_mask(); }

  bool statistics() const {
    if (!args_.lse.present() && !args_.row_max.present()) return true;
    if (args_.row_max.present() && options_.normalize) {
      return no("row_max: is given, normalize is true; it belongs to unnormalized outputs");
    }
    const std::array<axis_rule, 3> axes{
        {{"batch", batch_, "q"}, {"heads", q_heads_, "q"}, {"length", q_len_, "q"}}};
    for (const auto& [name, view] : {named{"lse", &args_.lse}, named{"row_max", &args_.row_max}}) {
      if (!view->present()) continue;
      if (view->type != dtype::f32) {
        return no(name, ": dtype is ", name_of(view->type), ", must be f32");
      }
      if (!has_shape(name, *view, std::span(axes).subspan(packed_ ? 1 : 0), failure_)) return false;
    }
    return true;
  }

  bool has_scores(std::string_view name, const tensor_view& view) const {
    if (packed_) {
      return no(name, ": is given with cu_seqlens_q; packed tensors have no such output");
    }
    const std::array<axis_rule, 4> axes{{{"batch", batch_, "q"},
                                         {"heads", q_heads_, "q"},
                                         {"rows", q_len_, "q"},
                                         {"keys", kv_len_, "k"}}};
    return has_shape(name, view, axes, failure_);
  }

  bool weights() const {
    const tensor_view& weights = args_.weights;
    if (!weights.present()) return true;
    if (op_ != flash_op::attention) {
      return no("weights: is given, ", name_of(op_), " does not write it; attention does");
    }
    if (!options_.normalize) {
      return no("weights: is given, normalize is false; weights are normalized");
    }
    if (weights.type != dtype::f32 && weights.type != args_.q.type) {
      return no("weights: dtype is ", name_of(weights.type), ", must be f32 or that of q, ",
                name_of(args_.q.type));
    }
    return has_scores("weights", weights);
  }

  bool dropout_mask() const {
    const tensor_view& kept = args_.dropout_mask;
    if (!kept.present()) return true;
    if (options_.dropout_probability == 0.0) {
      return no("dropout_mask: is given, dropout_probability is 0");
    }
    if (kept.type != dtype::u8) {
      return no("dropout_mask: dtype is ", name_of(kept.type), ", must be u8");
    }
    return has_scores("dropout_mask", kept);
  }

  struct named {
    std::string_view name;
    const tensor_view* view;
  };

  flash_op op_;
  const flash_attention_args& args_;
  const flash_attention_options& options_;
  status& failure_;
  bool packed_ = false;
  std::int64_t batch_ = 0, q_len_ = 0, kv_len_ = 0, q_heads_ = 0, kv_heads_ = 0;
  std::int64_t head_dim_ = 0, v_head_dim_ = 0;
};

}  // namespace tessera::checks
