// The plain definition of native sparse attention: for each query row and branch
// the list of its keys, one softmax, no tiles, nothing shared with a kernel. A key is the mean of
// the tokens of a block, or a single token, which is the mean of one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include <tessera/families/sparse_attention/block_selection_args.hpp>
#include <tessera/families/sparse_attention/block_selection_options.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>

#include "elements.hpp"
#include "flash_attention.hpp"

namespace tessera::reference {

/// Tokens [begin, begin + length) of an entry.
struct native_sequence {
  std::int64_t entry = 0, begin = 0, length = 0;
};
inline std::vector<native_sequence> native_sequences(const tensor_view& q,
                                                     const tensor_view& offsets) {
  std::vector<native_sequence> all;
  const std::int64_t count = offsets.present() ? offsets.extent[0] - 1 : q.extent[0];
  for (std::int64_t n = 0; n < count; ++n) {
    if (!offsets.present()) {
      all.push_back({n, 0, q.extent[1]});
      continue;
    }
    const auto begin = static_cast<std::int64_t>(at(offsets, n));
    all.push_back({0, begin, static_cast<std::int64_t>(at(offsets, n + 1)) - begin});
  }
  return all;
}

/// The tokens whose mean is a key, from the first of the sequence.
struct native_key {
  std::int64_t begin = 0, end = 0;
};
using native_keys = std::vector<native_key>;

/// What both directions of a call have.
struct native_call {
  tensor_view q, k, v, g_slc, g_cmp, g_swa, selection, counts, offsets;
  native_sparse_attention_options options;
  bool selects = false;  ///< by scores, not by `selection`
  /// Selected whatever their weight: of a sequence, and up to a token's own.
  std::int64_t first_blocks = 0, last_blocks = 1;

  static native_call of(const native_sparse_attention_args& args,
                        const native_sparse_attention_options& options) {
    return {args.q,
            args.k,
            args.v,
            args.g_slc,
            args.g_cmp,
            args.g_swa,
            args.block_indices,
            args.block_counts,
            args.cu_seqlens,
            options,
            !args.block_indices.present()};
  }
  static native_call of(const native_sparse_attention_backward_args& args,
                        const native_sparse_attention_options& options) {
    return {args.q,
            args.k,
            args.v,
            args.g_slc,
            args.g_cmp,
            args.g_swa,
            args.selected_blocks,
            args.block_counts,
            args.cu_seqlens,
            options,
            false};
  }
  static native_call of(const block_selection_args& args, const block_selection_options& options) {
    native_call call;
    call.q = args.q;
    call.k = args.k;
    call.offsets = args.cu_seqlens;
    call.options = {.softmax_scale = options.softmax_scale,
                    .block_size = options.block_size,
                    .block_count = options.block_count};
    call.selects = true;
    call.first_blocks = options.first_blocks;
    call.last_blocks = options.last_blocks;
    return call;
  }

  double scale() const {
    return options.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(q.extent[3])));
  }
  std::int64_t kv_head_of(std::int64_t head) const { return head / (q.extent[2] / k.extent[2]); }

  native_keys complete_blocks(std::int64_t token) const {
    native_keys keys;
    for (std::int64_t end = options.block_size; end <= token + 1; end += options.block_size) {
      keys.push_back({end - options.block_size, end});
      if (options.block_size > token) break;  // the sum may be more than there are numbers
    }
    return keys;
  }
  native_keys window(std::int64_t token) const {
    native_keys keys;
    for (std::int64_t j = 0; j <= token; ++j) {
      if (!options.window_left || token - j <= *options.window_left) keys.push_back({j, j + 1});
    }
    return keys;
  }
  /// Tokens of blocks up to `token`; numbers that are no block's have none.
  native_keys tokens_of(const std::vector<std::int64_t>& blocks, std::int64_t token) const {
    native_keys keys;
    for (const std::int64_t block : blocks) {
      if (block < 0 || block > token / options.block_size) continue;
      const std::int64_t begin = block * options.block_size;
      for (std::int64_t j = begin; j <= token && j - begin < options.block_size; ++j) {
        keys.push_back({j, j + 1});
      }
    }
    return keys;
  }
  std::vector<std::int64_t> given(const native_sequence& tokens, std::int64_t token,
                                  std::int64_t kv_head) const {
    std::vector<std::int64_t> blocks;
    double used = static_cast<double>(selection.extent[3]);
    if (counts.present()) {
      used = std::min(used, at(counts, tokens.entry, tokens.begin + token, kv_head));
    }
    for (std::int64_t s = 0; static_cast<double>(s) < used; ++s) {
      blocks.push_back(static_cast<std::int64_t>(
          read(selection, tokens.entry * selection.stride[0] +
                              (tokens.begin + token) * selection.stride[1] +
                              kv_head * selection.stride[2] + s * selection.stride[3])));
    }
    return blocks;
  }
};

/// A softmax of one row.
template <class Real>
struct native_softmax {
  std::vector<const Real*> k, v;  ///< of each key
  std::vector<Real> weights, out;
  double lse = -HUGE_VAL, out_size = 0, logit_size = 0;
};

template <class Precision>
class native_evaluation {
 public:
  using real = typename Precision::real;
  using row = std::vector<real>;

  explicit native_evaluation(const native_call& call)
      : call_(call), q_(elements_of(call.q)), k_(elements_of(call.k)), v_(elements_of(call.v)) {}

  /// Row-major elements of a tensor [B,T,heads,width].
  static row elements_of(const tensor_view& view) {
    row elements;
    if (!view.present()) return elements;
    for (const double element : to_doubles(view)) elements.push_back(static_cast<real>(element));
    return elements;
  }
  static row row_of(const row& elements, const tensor_view& view, const native_sequence& tokens,
                    std::int64_t token, std::int64_t head) {
    const std::int64_t place =
        (tokens.entry * view.extent[1] + tokens.begin + token) * view.extent[2] + head;
    const auto begin = elements.begin() + place * view.extent[3];
    return row(begin, begin + view.extent[3]);
  }
  row query(const native_sequence& tokens, std::int64_t token, std::int64_t head) const {
    return row_of(q_, call_.q, tokens, token, head);
  }
  /// The tokens of a key, added up and divided; those of means are kept.
  const real* key_row(const row& elements, const tensor_view& view, const native_sequence& tokens,
                      native_key key, std::int64_t head) const {
    const auto width = static_cast<std::size_t>(view.extent[3]);
    const auto token = [&](std::int64_t j) {
      return elements.data() +
             ((tokens.entry * view.extent[1] + tokens.begin + j) * view.extent[2] + head) *
                 view.extent[3];
    };
    if (key.end == key.begin + 1) return token(key.begin);
    row& mean = means_[{&elements, tokens.entry, tokens.begin + key.begin, head}];
    if (!mean.empty()) return mean.data();
    mean.assign(width, real{0});
    for (std::int64_t j = key.begin; j < key.end; ++j) {
      for (std::size_t d = 0; d < width; ++d) mean[d] += token(j)[d];
    }
    for (real& element : mean) element /= static_cast<real>(key.end - key.begin);
    return mean.data();
  }

  native_softmax<real> softmax(const native_sequence& tokens, std::int64_t token, std::int64_t head,
                               const native_keys& keys) const {
    native_softmax<real> result;
    const std::int64_t kv_head = call_.kv_head_of(head);
    const row q = query(tokens, token, head);
    const bool has_values = call_.v.present();
    result.out.assign(static_cast<std::size_t>(has_values ? call_.v.extent[3] : 0), real{0});
    real most = -HUGE_VAL, sum = 0;
    for (const native_key key : keys) {
      result.k.push_back(key_row(k_, call_.k, tokens, key, kv_head));
      if (has_values) result.v.push_back(key_row(v_, call_.v, tokens, key, kv_head));
      real dot = 0, size = 0;
      for (std::size_t d = 0; d < q.size(); ++d) {
        dot += q[d] * result.k.back()[d];
        size += std::fabs(q[d] * result.k.back()[d]);
      }
      result.weights.push_back(dot * static_cast<real>(call_.scale()));
      most = std::max(most, result.weights.back());
      result.logit_size =
          std::max(result.logit_size, static_cast<double>(size) * std::fabs(call_.scale()));
    }
    if (keys.empty()) return result;
    for (real& weight : result.weights) sum += weight = std::exp(weight - most);
    result.lse = static_cast<double>(most + std::log(sum));
    std::vector<double> sizes(result.out.size(), 0.0);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      result.weights[n] /= sum;
      for (std::size_t d = 0; d < result.out.size(); ++d) {
        const real term = result.weights[n] * result.v[n][d];
        result.out[d] += term;
        sizes[d] += std::fabs(static_cast<double>(term));
      }
    }
    if (has_values) result.out_size = *std::max_element(sizes.begin(), sizes.end());
    return result;
  }

  /// The selection of a token: its own block first, then those that are selected anyway, then by
  /// weight, lower numbers first.
  std::vector<std::int64_t> selected(const native_sequence& tokens, std::int64_t token,
                                     std::int64_t kv_head) const {
    const std::int64_t own = token / call_.options.block_size;
    const std::int64_t group = call_.q.extent[2] / call_.k.extent[2];
    std::vector<std::int64_t> order(static_cast<std::size_t>(own));
    std::iota(order.begin(), order.end(), 0);
    if (own < call_.options.block_count) {  // there is nothing to choose
      order.push_back(own);
      return order;
    }
    std::vector<real> weights(static_cast<std::size_t>(own + 1), real{0});
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      const auto found = softmax(tokens, token, h, call_.complete_blocks(token));
      for (std::size_t n = 0; n < found.weights.size(); ++n) weights[n] += found.weights[n];
    }
    for (std::int64_t block = 0; block < own; ++block) {
      if (block < call_.first_blocks || own - block < call_.last_blocks) {
        weights[static_cast<std::size_t>(block)] = HUGE_VAL;
      }
    }
    std::ranges::stable_sort(order, std::greater<>(), [&](std::int64_t block) {
      return weights[static_cast<std::size_t>(block)];
    });
    const std::int64_t others = std::min(own, call_.options.block_count - 1);
    order.resize(static_cast<std::size_t>(others));
    order.push_back(own);
    std::ranges::sort(order);
    return order;
  }
  std::vector<std::int64_t> blocks_of(const native_sequence& tokens, std::int64_t token,
                                      std::int64_t kv_head) const {
    return call_.selects ? selected(tokens, token, kv_head) : call_.given(tokens, token, kv_head);
  }

  real gate(const tensor_view& view, const native_sequence& tokens, std::int64_t token,
            std::int64_t head) const {
    return view.present() ? static_cast<real>(at(view, tokens.entry, tokens.begin + token, head))
                          : real{1};
  }

  /// Calls visit(keys, gate tensor, number of the branch) for the branches of a row.
  template <class Visit>
  void for_each_branch(const std::vector<std::int64_t>& blocks, std::int64_t token,
                       const Visit& visit) const {
    visit(call_.tokens_of(blocks, token), call_.g_slc, 0);
    if (call_.g_cmp.present()) visit(call_.complete_blocks(token), call_.g_cmp, 1);
    if (call_.g_swa.present()) visit(call_.window(token), call_.g_swa, 2);
  }

 private:
  const native_call& call_;
  row q_, k_, v_;
  using place = std::tuple<const row*, std::int64_t, std::int64_t, std::int64_t>;
  mutable std::map<place, row> means_;
};

/// Outputs of a call; tokens behind the last sequence have zeros, and -1 for their blocks.
struct native_result {
  std::vector<double> out, out_size, logits;
  std::vector<double> selected;
};

/// The selection of all tokens, [tokens][kv heads][slots].
template <class Precision>
std::vector<double> native_selection(const native_call& call, std::int64_t slots) {
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::int64_t heads = call.k.extent[2];
  std::vector<double> selected(count(call.q.extent[0] * call.q.extent[1] * heads * slots), -1.0);
  const native_evaluation<Precision> evaluation(call);
  for (const native_sequence& tokens : native_sequences(call.q, call.offsets)) {
    for (std::int64_t t = 0; t < tokens.length; ++t) {
      const std::int64_t place = tokens.entry * call.q.extent[1] + tokens.begin + t;
      for (std::int64_t g = 0; g < heads; ++g) {
        const std::vector<std::int64_t> blocks = evaluation.blocks_of(tokens, t, g);
        std::copy(blocks.begin(), blocks.end(), selected.begin() + (place * heads + g) * slots);
      }
    }
  }
  return selected;
}

template <class Precision>
native_result native_outputs(const native_call& call, dtype out_type, std::int64_t slots) {
  using real = typename Precision::real;
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::int64_t heads = call.q.extent[2], width = call.v.extent[3];
  const std::int64_t rows = call.q.extent[0] * call.q.extent[1] * heads;
  native_result result;
  result.out.assign(count(rows * width), 0.0);
  result.out_size.assign(count(rows), 0.0);
  result.logits = result.out_size;
  result.selected.assign(count(call.q.extent[0] * call.q.extent[1] * call.k.extent[2] * slots),
                         -1.0);
  const native_evaluation<Precision> evaluation(call);
  for (const native_sequence& tokens : native_sequences(call.q, call.offsets)) {
    for (std::int64_t t = 0; t < tokens.length; ++t) {
      const std::int64_t place = tokens.entry * call.q.extent[1] + tokens.begin + t;
      for (std::int64_t g = 0; g < call.k.extent[2]; ++g) {
        const std::vector<std::int64_t> blocks = evaluation.blocks_of(tokens, t, g);
        for (std::size_t s = 0; slots > 0 && s < blocks.size(); ++s) {
          result.selected[count((place * call.k.extent[2] + g) * slots) + s] =
              static_cast<double>(blocks[s]);
        }
        for (std::int64_t h = 0; h < heads; ++h) {
          if (call.kv_head_of(h) != g) continue;
          const std::size_t row = count(place * heads + h);
          std::vector<real> sum(count(width), real{0});
          evaluation.for_each_branch(
              blocks, t, [&](const native_keys& keys, const tensor_view& gate_view, int) {
                const auto found = evaluation.softmax(tokens, t, h, keys);
                const real gate = evaluation.gate(gate_view, tokens, t, h);
                for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += gate * found.out[d];
                result.out_size[row] += std::fabs(static_cast<double>(gate)) * found.out_size;
                result.logits[row] = std::max(result.logits[row], found.logit_size);
              });
          for (std::size_t d = 0; d < sum.size(); ++d) {
            result.out[row * count(width) + d] =
                static_cast<double>(Precision::rounded(out_type, sum[d]));
          }
        }
      }
    }
  }
  return result;
}

}  // namespace tessera::reference
