// The class `mask_info`; see tessera/api/mask_info.hpp, which has the definitions too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/api/mask_info/conversions.hpp>
#include <tessera/api/mask_info/slice.hpp>
#include <tessera/api/mask_info/terms.hpp>
#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// How `apply_token_type_ids` joins "same type" with the mask there is.
enum class token_type_combine : std::uint8_t { union_with, intersect, replace };

/// Where token type 0 matches nothing.
enum class zero_token_type : std::uint8_t { masked_in_q, masked_in_kv, masked_in_both, matches };

/// Keeps the memory alive that `mask_info::apply_to` made views of.
class mask_storage {
 public:
  template <class Value>
  const Value* keep(std::shared_ptr<const Value> value) {
    kept_.push_back(value);
    return value.get();
  }

 private:
  std::vector<std::shared_ptr<const void>> kept_;
};

class mask_info {
 public:
  /// Every row sees every key.
  static result<mask_info> all_visible(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len);

  /// Rows see keys of the same id; negative ids are padding. i32 [B,Sq], [B,Sk]; without `kv_ids`
  /// the ids of queries serve for keys. Positions (i32, likewise shaped) are carried along and
  /// change nothing by themselves; see `apply_causal_positions`.
  static result<mask_info> from_segments(const tensor_view& q_ids, const tensor_view& kv_ids = {},
                                         const tensor_view& q_positions = {},
                                         const tensor_view& kv_positions = {});

  /// Valid rows see valid keys. u8 or i32 [B,Sq], [B,Sk], nonzero = valid; ids are 0 and -1.
  static result<mask_info> from_validity(const tensor_view& q_valid,
                                         const tensor_view& kv_valid = {});

  /// A mask tensor, u8 or i32, nonzero = may attend. Rank 4 is [B,H or 1,Sq,Sk] and rank 3
  /// [B,Sq,Sk]. Rank 2 is a padding mask [B,Sk], never [Sq,Sk]: of queries too when there are as
  /// many; with `q_len` different from Sk every row is valid.
  static result<mask_info> from_attention_mask(const tensor_view& mask,
                                               std::optional<std::int64_t> q_len = {});

  /// Each element is visible with probability 1 - sparsity; the same on every machine.
  static result<mask_info> from_random(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len,
                                       double sparsity = 0.5, std::uint64_t seed = 0);

  /// Same chunk and causal; see `apply_chunked`.
  static result<mask_info> chunked(std::int64_t chunk_size, std::int64_t batch, std::int64_t q_len,
                                   std::int64_t kv_len, const masks::per_batch& offset = 0);

  // Restrictions: each is ANDed to what there is. A refused call changes nothing.

  /// Keep j <= i + offset. 0 is top-left.
  status apply_causal(const masks::per_batch& offset);
  /// Keep what the aligned diagonal allows; bottom_right is that of the lengths applied so far.
  status apply_causal(alignment aligned = alignment::bottom_right);
  /// Keep row - left <= j <= row + right with row = i + offset; unset is unbounded.
  status apply_sliding_window(std::optional<std::int64_t> left, std::optional<std::int64_t> right,
                              const masks::per_batch& offset = 0);
  /// Same chunk of `size` tokens and causal: floor((i + offset) / size) = floor(j / size) and
  /// j <= i + offset. Segment ids stay what they are.
  status apply_chunked(std::int64_t size, const masks::per_batch& offset = 0);
  /// Segments besides those there are. The first ones given are those that accessors return.
  status apply_segments(const tensor_view& q_ids, const tensor_view& kv_ids = {});
  /// Keep kv_positions <= q_positions, with the positions given or computed from segments.
  status apply_causal_positions();
  /// A mask tensor [B or 1, H or 1, Sq or 1, Sk or 1], u8 or i32, nonzero = visible.
  status apply_mask(const tensor_view& mask);
  /// Rows and keys at or beyond their lengths are padding; unset is the whole extent.
  status apply_lengths(const std::optional<masks::per_batch>& q_lengths,
                       const std::optional<masks::per_batch>& kv_lengths);
  /// Both masks; extents must agree.
  status apply(const mask_info& other);

  // Other combinations.

  /// One mask or the other; extents must agree.
  status unite(const mask_info& other);
  /// Joins "same token type" (i32 [B,Sq], [B,Sk]; negative matches nothing). Segment ids are kept,
  /// but by `replace`, which puts the types in their place.
  status apply_token_type_ids(const tensor_view& q_types, const tensor_view& kv_types = {},
                              token_type_combine combine = token_type_combine::union_with,
                              zero_token_type zero = zero_token_type::masked_in_q);
  /// For decoding from a cache: keys at or beyond the length are hidden, and what remains are the
  /// `q_len` rows that end at each length (rows before the first see nothing), optionally with the
  /// `sliding_window` columns that end there.
  status apply_kv_lengths(const masks::per_batch& kv_lengths, std::int64_t q_len,
                          std::optional<std::int64_t> sliding_window = {});
  /// Row `index` under the window (left, right), with the min(left + right + 1, Sk) columns that
  /// begin at index - left or the nearest place inside.
  status keep_decode_row(std::int64_t index, std::int64_t left, std::int64_t right);
  /// Only the last `count` key columns.
  status keep_last_keys(std::int64_t count);

  // What it says.

  std::int64_t batch() const noexcept { return sizes_.batch; }
  std::int64_t heads() const noexcept { return sizes_.heads; }  ///< 1: the same for all
  std::int64_t q_len() const noexcept { return sizes_.q_len; }
  std::int64_t kv_len() const noexcept { return sizes_.kv_len; }
  /// As many keys as queries, and the same segments where there are any.
  bool is_self_attention() const noexcept;

  /// Whether row i may see key j; false outside the extents.
  bool visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  /// What a tile needs. `full` and `skip` are certain; `partial` may be either.
  tile_state classify(const masks::tile& tile) const {
    return masks::classify(terms_, sizes_, tile);
  }
  /// The mask written out: [B,H,Sq,Sk] with H = heads().
  dense_mask attention_mask() const;
  /// 0 where visible and -inf elsewhere, shaped like `attention_mask()`.
  std::vector<float> bias() const { return bias_of(attention_mask()); }

  bool has_segment_ids() const noexcept { return segments_.has_value(); }
  /// The ids given; without any, 0 for valid and -1 for padding rows and keys (groups are lost).
  segment_pair segment_ids() const;
  /// Ids that say the same as the whole mask, or why there are none.
  result<segment_pair> exact_segment_ids() const { return segment_ids_of(attention_mask()); }
  /// The positions given, or those inside the segments: see `positions_of`.
  segment_pair positions() const;
  /// 1 for rows [B,Sq] and keys [B,Sk] that are no padding: inside the lengths, of a segment that
  /// is not negative, and not hidden altogether by a mask tensor or union.
  std::vector<std::uint8_t> q_valid() const;
  std::vector<std::uint8_t> kv_valid() const;
  /// max(valid rows up to and with this one - 1, 0): the index among the valid rows. [B,Sq].
  std::vector<std::int32_t> q_position_ids() const;

  /// The predicates, all of which hold for what is visible.
  const std::vector<masks::term>& terms() const noexcept { return terms_; }

  /// Puts the mask into a call: causal, window, segments, chunks and lengths as options and
  /// vectors, everything else (positions, unions, offsets that differ per entry) as one u8 mask.
  /// Refuses a call that has masks already or other extents. A mask for one batch entry serves any
  /// number.
  result<mask_storage> apply_to(flash_attention_args& args, flash_attention_options& options) const;

 private:
  using id_pair = masks::same_id;

  explicit mask_info(const masks::sizes& sizes) : sizes_(sizes) {}
  status check_offsets(const masks::per_batch& offsets, const char* name) const;
  result<id_pair> read_pair(const tensor_view& q, const tensor_view& kv, const char* q_name,
                            const char* kv_name) const;
  void keep_part(const masks::part& part);
  struct validity {
    std::vector<std::uint8_t> q, kv;
  };
  validity valid() const;

  masks::sizes sizes_;
  std::vector<masks::term> terms_;
  std::optional<id_pair> segments_;
  std::optional<id_pair> positions_;
};

}  // namespace tessera
