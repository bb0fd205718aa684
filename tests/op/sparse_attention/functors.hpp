// Mask functors of blocksparse attention, and a call to try them on: the same text for the CPU and
// the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/sparse_attention/block_mask.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

#include "tests/support/random.hpp"

namespace tessera::support {

/// What a mask tensor [B or 1, Hq or 1, Sq or 1, Sk or 1] shows, element by element.
struct shown_bytes {
  const std::uint8_t* data = nullptr;
  std::int64_t entry = 0, head = 0, row = 0, key = 0;

  shown_bytes() = default;
  explicit shown_bytes(const tensor_view& mask)
      : data(static_cast<const std::uint8_t*>(mask.data)),
        entry(stride_of(mask, 0)),
        head(stride_of(mask, 1)),
        row(stride_of(mask, 2)),
        key(stride_of(mask, 3)) {}

  TESSERA_HD bool operator()(const position& at) const {
    return data[at.batch * entry + at.head * head + at.query * row + at.key * key] != 0;
  }

 private:
  static std::int64_t stride_of(const tensor_view& mask, std::size_t axis) {
    return mask.extent[axis] == 1 ? 0 : mask.stride[axis];
  }
};

/// How much a functor shows of a tile, asked about all of its pairs.
template <class Mask>
TESSERA_HD prim::tile_visibility of_pairs(const Mask& mask, const prim::score_tile& tile) {
  bool some = false, all = true;
  for (int h = tile.head_begin; h < tile.head_end; ++h) {
    for (std::int64_t i = tile.query_begin; i < tile.query_end; ++i) {
      for (std::int64_t j = tile.key_begin; j < tile.key_end; ++j) {
        const bool shown = mask({.batch = tile.entry, .head = h, .query = i, .key = j});
        some = some || shown;
        all = all && shown;
      }
    }
  }
  return all    ? prim::tile_visibility::full
         : some ? prim::tile_visibility::partial
                : prim::tile_visibility::skip;
}

/// The same, which speaks for tiles too.
struct classified_bytes : shown_bytes {
  using shown_bytes::shown_bytes;

  TESSERA_HD prim::tile_visibility classify(const prim::score_tile& tile) const {
    return of_pairs(static_cast<const shown_bytes&>(*this), tile);
  }
};

/// Positions [p - behind, p + ahead] of a query at p.
struct band {
  std::int64_t behind = 0, ahead = 0;
  TESSERA_HD bool operator()(const position& at) const {
    const std::int64_t distance = at.key - at.query_position;
    return -behind <= distance && distance <= ahead;
  }
};

/// Positions of the query's own chunk.
struct chunks {
  std::int64_t size = 1;
  TESSERA_HD bool operator()(const position& at) const {
    return at.query_position / size == at.key / size;
  }
};

/// Rows and keys of the same number.
struct same_document {
  const std::int32_t* of = nullptr;
  TESSERA_HD bool operator()(const position& at) const { return of[at.query] == of[at.key]; }
};

/// Another half of the tiles of 32 for each head, said of tiles of that size or within.
struct heads_of_blocks {
  static constexpr std::int64_t side = 32;
  TESSERA_HD bool operator()(const position& at) const {
    return (at.query / side + at.key / side + at.head) % 2 == 0;
  }
  TESSERA_HD prim::tile_visibility classify(const prim::score_tile& tile) const {
    const bool within = tile.head_begin + 1 == tile.head_end &&
                        tile.query_begin / side == (tile.query_end - 1) / side &&
                        tile.key_begin / side == (tile.key_end - 1) / side;
    if (!within) return prim::tile_visibility::partial;
    const position first{.head = tile.head_begin, .query = tile.query_begin, .key = tile.key_begin};
    return (*this)(first) ? prim::tile_visibility::full : prim::tile_visibility::skip;
  }
};

/// The one or, without documents, the other; says of every tile what its pairs say.
struct documents_or_blocks {
  const std::int32_t* of = nullptr;
  TESSERA_HD bool operator()(const position& at) const {
    return of != nullptr ? same_document{of}(at) : heads_of_blocks{}(at);
  }
  TESSERA_HD prim::tile_visibility classify(const prim::score_tile& tile) const {
    return of != nullptr ? of_pairs(same_document{of}, tile) : heads_of_blocks{}.classify(tile);
  }
};

inline std::vector<std::int32_t> documents_of(std::int64_t tokens) {
  random_source random(8);
  std::vector<std::int32_t> documents(static_cast<std::size_t>(tokens));
  std::int32_t document = 0;
  for (std::int32_t& own : documents) own = document += random.chance(0.03) ? 1 : 0;
  return documents;
}

/// Tensors of one entry, forward and backward.
template <class Element = float>
struct sparse_call {
  static constexpr std::int64_t q_heads = 4;
  std::int64_t kv_heads, q_len, kv_len, head_dim, v_head_dim;
  std::vector<Element> q, k, v, d_out, out, d_q, d_k, d_v;
  std::vector<float> lse;

  sparse_call(std::int64_t rows, std::int64_t keys, std::int64_t width, std::int64_t of_v,
              std::int64_t heads_of_keys = 2)
      : kv_heads(heads_of_keys),
        q_len(rows),
        kv_len(keys),
        head_dim(width),
        v_head_dim(of_v),
        q(bells(q_heads * rows * width, 1)),
        k(bells(kv_heads * keys * width, 2)),
        v(bells(kv_heads * keys * of_v, 3)),
        d_out(bells(q_heads * rows * of_v, 4)),
        out(d_out.size()),
        d_q(q.size()),
        d_k(k.size()),
        d_v(v.size()),
        lse(static_cast<std::size_t>(q_heads * rows)) {}

  blocksparse_attention_args args() {
    return {.q = view(q.data(), {1, q_heads, q_len, head_dim}),
            .k = view(k.data(), {1, kv_heads, kv_len, head_dim}),
            .v = view(v.data(), {1, kv_heads, kv_len, v_head_dim}),
            .out = view(out.data(), {1, q_heads, q_len, v_head_dim}),
            .lse = view(lse.data(), {1, q_heads, q_len})};
  }
  blocksparse_attention_backward_args backward_args() {
    const blocksparse_attention_args of = args();
    return {.q = of.q,
            .k = of.k,
            .v = of.v,
            .out = of.out,
            .lse = of.lse,
            .d_out = view(d_out.data(), {1, q_heads, q_len, v_head_dim}),
            .d_q = view(d_q.data(), {1, q_heads, q_len, head_dim}),
            .d_k = view(d_k.data(), {1, kv_heads, kv_len, head_dim}),
            .d_v = view(d_v.data(), {1, kv_heads, kv_len, v_head_dim})};
  }
  /// Blocks of the call; every head has its own, or all have the same.
  block_grid grid(std::int64_t block_q, std::int64_t block_k, std::int64_t heads = q_heads) const {
    return {.heads = heads,
            .q_len = q_len,
            .kv_len = kv_len,
            .block_q = block_q,
            .block_k = block_k,
            .first_position = kv_len - q_len};
  }
  void clear() {
    for (auto* of : {&out, &d_q, &d_k, &d_v}) of->assign(of->size(), Element(-1.0f));
    lse.assign(lse.size(), -1.0f);
  }
  /// All that the calls have written.
  std::vector<float> results() const {
    std::vector<float> all(lse);
    for (const auto* of : {&out, &d_q, &d_k, &d_v}) {
      for (const Element x : *of) all.push_back(static_cast<float>(x));
    }
    return all;
  }

 private:
  static std::vector<Element> bells(std::int64_t count, std::uint64_t seed) {
    random_source random(seed);
    std::vector<Element> numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(Element(random.bell()));
    return numbers;
  }
};

}  // namespace tessera::support
