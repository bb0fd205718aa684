// Which keys each token sees, one list for all heads: those that are given, or those that a small
// attention without softmax, the indexer, scores highest:
//
//   for each block of tokens {
//     for each block of rows (token, index head) { for each tile of keys { products; scores } }
//     for each token { the k-th largest score; keys above it, then the first of those that equal it
//     }
//   }
//
// DeepSeek-AI, "DeepSeek-V3.2".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/cpu/expand.hpp>
#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Kernel>
class key_selection {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using reg = typename shape::reg;

 public:
  explicit key_selection(const latent_attention_kernel_args& args)
      : args_(args),
        of_(args.indexer),
        tokens_of_block_(
            of_.heads > 0 ? std::clamp<std::int64_t>(shape::block_rows / of_.heads, 1, most_tokens)
                          : most_tokens),
        blocks_((args.length + tokens_of_block_ - 1) / tokens_of_block_),
        score_stride_(shape::columns_of(args.length) + shape::block_keys) {}

  /// Of the lists, and of what is needed to make them.
  std::size_t list_bytes() const {
    prim::float_carver carver(nullptr);
    static_cast<void>(lists_in(carver));
    return carver.bytes();
  }
  std::size_t workspace_bytes(int threads) const {
    return static_cast<std::size_t>(threads) * scratch(*this, nullptr).bytes;
  }

  key_lists run(std::byte* list_memory, std::byte* workspace, int threads) const {
    prim::float_carver carver(list_memory);
    const key_lists lists = lists_in(carver);
    const std::size_t step = scratch(*this, nullptr).bytes;
    prim::parallel_items<isa_type>(
        args_.entries * blocks_, threads, [&](std::int64_t item, int thread) {
          const scratch memory(*this, workspace + static_cast<std::size_t>(thread) * step);
          const std::int64_t entry = item / blocks_, first = item % blocks_ * tokens_of_block_;
          const token_block block{.entry = entry,
                                  .first = first,
                                  .count = std::min(tokens_of_block_, args_.length - first)};
          if (!is_given()) score(block, memory);
          for (std::int64_t t = 0; t < block.count; ++t) make_list(block, t, memory, lists);
        });
    return lists;
  }

 private:
  /// Tokens that are scored together: their scores of all keys lie side by side.
  static constexpr std::int64_t most_tokens = 8;

  struct token_block {
    std::int64_t entry = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  /// Of a thread.
  struct scratch {
    scratch(const key_selection& of, std::byte* base) {
      prim::float_carver carver(base);
      const key_indexer& indexer = of.of_;
      const std::int64_t rows = of.is_given() ? 0 : shape::block_rows;
      const std::int64_t keys = of.is_given() ? 0 : shape::block_keys;
      queries = carver.take(slabs<Kernel>::floats(static_cast<int>(rows), indexer.width));
      query_row = carver.take(of.is_given() ? 0 : of.key_stride());
      key_rows = carver.take(keys * of.key_stride());
      panels = carver.take(keys * indexer.width);
      products = carver.take(rows * shape::score_stride);
      scores = carver.take(of.is_given() ? 0 : of.tokens_of_block_ * of.score_stride_);
      order = carver.take(of.is_given() ? 0 : of.args_.length);
      bytes = carver.bytes();
    }
    float* queries;    ///< slabs
    float* query_row;  ///< of a token and head
    float* key_rows;   ///< [block_keys, key_stride]
    float* panels;     ///< the same as columns
    float* products;   ///< [block_rows, score_stride]
    float* scores;     ///< [tokens of a block, score_stride_]
    float* order;      ///< scores of a token, in no order
    std::size_t bytes;
  };

  bool is_given() const { return of_.given.data != nullptr; }
  std::int64_t key_stride() const { return elements_stride(of_.width); }
  /// Keys that a token may see: the first so many.
  std::int64_t visible(std::int64_t token) const { return args_.causal ? token + 1 : args_.length; }

  key_lists lists_in(prim::float_carver& carver) const {
    const std::int64_t tokens = args_.entries * args_.length;
    key_lists lists;
    lists.keys = carver.take<std::int32_t>(tokens * of_.slots);
    lists.counts = carver.take<std::int32_t>(tokens);
    lists.slots = of_.slots;
    return lists;
  }

  /// Scores of the tokens of a block; behind the keys that a token may see there is anything.
  void score(const token_block& block, const scratch& memory) const {
    std::fill_n(memory.scores, block.count * score_stride_, 0.0f);
    const slabs<Kernel> queries(memory.queries, shape::block_rows, of_.width);
    const std::int64_t rows = block.count * of_.heads;
    for (std::int64_t begin = 0; begin < rows; begin += shape::block_rows) {
      const auto count = static_cast<int>(std::min<std::int64_t>(shape::block_rows, rows - begin));
      for (int r = 0; r < count; ++r) {
        const std::int64_t token = block.first + (begin + r) / of_.heads;
        load_elements<isa_type>(of_.q, of_.q.at(block.entry, token, (begin + r) % of_.heads),
                                of_.width, memory.query_row);
        queries.load(r, memory.query_row);
      }
      const std::int64_t keys = visible(block.first + (begin + count - 1) / of_.heads);
      for (std::int64_t key0 = 0; key0 < keys; key0 += shape::block_keys) {
        const auto left = std::min<std::int64_t>(shape::block_keys, keys - key0);
        const key_range tile{key0, static_cast<int>(left)};
        queries.template multiply<prim::product_kind::overwrite>(
            count, pack_keys(block.entry, tile, memory), shape::columns_of(tile.count),
            memory.products, shape::score_stride);
        for (int r = 0; r < count; ++r) {
          add_score(block, begin + r, tile, memory.products + r * shape::score_stride, memory);
        }
      }
    }
    for (std::int64_t t = 0; t < block.count && of_.k_scale.data != nullptr; ++t) {
      const auto* const scales = static_cast<const float*>(of_.k_scale.data);
      float* const row = memory.scores + t * score_stride_;
      for (std::int64_t key = 0; key < visible(block.first + t); ++key) {
        row[key] *= scales[of_.k_scale.at(block.entry, key)];
      }
    }
  }

  typename shape::panels pack_keys(std::int64_t entry, const key_range& keys,
                                   const scratch& memory) const {
    for (int c = 0; c < keys.count; ++c) {
      load_elements<isa_type>(of_.k, of_.k.at(entry, keys.key0 + c), of_.width,
                              memory.key_rows + c * key_stride());
    }
    const typename shape::panels panels{memory.panels, static_cast<int>(of_.width),
                                        shape::block_keys};
    pack_key_columns<Kernel>(memory.key_rows, key_stride(), keys.count, panels);
    return panels;
  }

  /// Row `row` of a block is a token and an index head.
  void add_score(const token_block& block, std::int64_t row, const key_range& keys,
                 const float* products, const scratch& memory) const {
    const std::int64_t t = row / of_.heads;
    const std::int64_t at = of_.weights.at(block.entry, block.first + t) + row % of_.heads;
    float scale = prim::element_at<isa_type>(of_.weights, at);
    if (of_.q_scale.data != nullptr) {
      scale *= prim::element_at<isa_type>(
          of_.q_scale, of_.q_scale.at(block.entry, block.first + t, row % of_.heads));
    }
    const reg weight = vec::broadcast(scale);
    const reg sign = vec::broadcast(of_.sign);
    float* const scores = memory.scores + t * score_stride_ + keys.key0;
    for (int c = 0; c < keys.count; c += vec::width) {
      const reg positive = vec::max(vec::mul(sign, vec::load(products + c)), vec::zero());
      vec::store(scores + c, vec::fma(weight, positive, vec::load(scores + c)));
    }
  }

  void make_list(const token_block& block, std::int64_t t, const scratch& memory,
                 const key_lists& lists) const {
    const std::int64_t token = block.first + t, number = block.entry * args_.length + token;
    std::int32_t* const keys = lists.keys + number * lists.slots;
    const std::int64_t count =
        is_given() ? take_given(block.entry, token, keys)
                   : keep_largest(token, memory.scores + t * score_stride_, memory.order, keys);
    lists.counts[number] = static_cast<std::int32_t>(count);
    if (of_.selected.data == nullptr) return;
    std::int32_t* const to = of_.selected.at(block.entry, token);
    for (std::int64_t s = 0; s < lists.slots; ++s) {
      to[s * of_.selected.slot] = s < count ? keys[s] : -1;
    }
  }

  std::int64_t take_given(std::int64_t entry, std::int64_t token, std::int32_t* to) const {
    const std::int32_t* const from = of_.given.at(entry, token);
    std::int32_t* end = to;
    for (std::int64_t s = 0; s < of_.slots; ++s) {
      const std::int32_t key = from[s * of_.given.slot];
      if (key >= 0 && key < visible(token)) *end++ = key;
    }
    std::sort(to, end);
    return std::unique(to, end) - to;
  }

  /// Of equal scores the first ones are kept; NaN is less than any number.
  std::int64_t keep_largest(std::int64_t token, float* scores, float* order,
                            std::int32_t* to) const {
    const std::int64_t keys = visible(token), kept = std::min(of_.topk, keys);
    for (std::int64_t key = 0; key < keys; ++key) {
      scores[key] = scores[key] == scores[key] ? scores[key] : prim::minus_infinity;
    }
    float least = prim::minus_infinity;
    std::int64_t equal = kept;
    if (kept < keys) {
      std::copy_n(scores, keys, order);
      std::nth_element(order, order + kept - 1, order + keys, std::greater<>());
      least = order[kept - 1];
      equal -= std::count_if(order, order + kept, [&](float score) { return score > least; });
    }
    std::int64_t count = 0;
    for (std::int64_t key = 0; key < keys; ++key) {
      const bool large = scores[key] > least || (scores[key] == least && equal-- > 0);
      if (large || (of_.force_self && key == token)) to[count++] = static_cast<std::int32_t>(key);
    }
    return count;
  }

  const latent_attention_kernel_args& args_;
  const key_indexer& of_;
  std::int64_t tokens_of_block_;
  std::int64_t blocks_;  ///< of an entry
  std::int64_t score_stride_;
};

}  // namespace tessera::kernels::latent_attention::cpu
