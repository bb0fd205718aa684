// Constructors of `mask_info`: from sizes, segment ids, validity vectors, mask tensors.
#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include <tessera/api/mask_info/declaration.hpp>

namespace tessera {

namespace masks {

/// Extents and offsets stay below this, so that sums of a few of them cannot overflow.
inline constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

inline status refusal(std::string sentence) {
  return {status_code::invalid_argument, std::move(sentence)};
}

inline std::string extents_text(const tensor_view& tensor) {
  std::string text = "[";
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (axis > 0) text += ',';
    text += std::to_string(tensor.extent[static_cast<std::size_t>(axis)]);
  }
  return text + "]";
}

/// Checks that the elements can be read here and counted.
inline status check_readable(const tensor_view& tensor, const std::string& name) {
  if (!tensor.present()) return refusal(name + ": is absent");
  if (tensor.rank < 0 || tensor.rank > max_rank) {
    return refusal(name + ": rank is " + std::to_string(tensor.rank) + ", it can be 0 to " +
                   std::to_string(max_rank));
  }
  if (tensor.device.kind != device_kind::cpu) {
    return refusal(name + ": is not in the CPU's memory, where masks are built");
  }
  std::int64_t count = 1;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    const std::int64_t size = tensor.extent[static_cast<std::size_t>(axis)];
    if (size < 0 || size > most) {
      return refusal(name + ": axis " + std::to_string(axis) + " is " + std::to_string(size) +
                     ", it can be 0 to " + std::to_string(most));
    }
    if (size > 0 && count > std::numeric_limits<std::int64_t>::max() / size) {
      return refusal(name + ": shape " + extents_text(tensor) + " is more than 2^63 elements");
    }
    count *= size;
  }
  if (count > 0 && tensor.data == nullptr) {
    return refusal(name + ": data is null, shape is " + extents_text(tensor));
  }
  return {};
}

inline status check_sizes(const sizes& of) {
  for (const auto& [size, name] :
       {std::pair{of.batch, "batch"}, {of.q_len, "q_len"}, {of.kv_len, "kv_len"}}) {
    if (size < 0 || size > most) {
      return refusal(std::string(name) + ": is " + std::to_string(size) + ", it can be 0 to " +
                     std::to_string(most));
    }
  }
  return {};
}

/// The elements of a rank 2 tensor, row-major. The tensor has passed `check_readable`.
inline shared_ids read_ids(const tensor_view& tensor) {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(tensor.elements()));
  const auto* data = static_cast<const std::int32_t*>(tensor.data);
  for (std::int64_t b = 0; b < tensor.extent[0]; ++b) {
    for (std::int64_t i = 0; i < tensor.extent[1]; ++i) {
      ids.push_back(data[b * tensor.stride[0] + i * tensor.stride[1]]);
    }
  }
  return std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
}

/// A u8 or i32 tensor of rank 4 as a term.
inline dense read_dense(const tensor_view& tensor) {
  dense read;
  std::copy_n(tensor.extent.begin(), 4, read.extent.begin());
  std::vector<std::uint8_t> visible;
  visible.reserve(static_cast<std::size_t>(tensor.elements()));
  const auto& stride = tensor.stride;
  for (std::int64_t b = 0; b < read.extent[0]; ++b) {
    for (std::int64_t h = 0; h < read.extent[1]; ++h) {
      for (std::int64_t i = 0; i < read.extent[2]; ++i) {
        for (std::int64_t j = 0; j < read.extent[3]; ++j) {
          const std::int64_t at = b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
          visible.push_back(tensor.type == dtype::u8
                                ? static_cast<const std::uint8_t*>(tensor.data)[at] != 0
                                : static_cast<const std::int32_t*>(tensor.data)[at] != 0);
        }
      }
    }
  }
  read.visible = std::make_shared<const std::vector<std::uint8_t>>(std::move(visible));
  return read;
}

inline status check_mask_type(const tensor_view& mask, const std::string& name) {
  if (auto done = check_readable(mask, name); !done) return done;
  if (mask.type == dtype::u8 || mask.type == dtype::i32) return {};
  return refusal(name + ": dtype is " + std::string(name_of(mask.type)) + ", masks are u8 or i32");
}

/// Nonzero to 0, zero to -1: the ids of a validity vector.
inline shared_ids ids_of_validity(const tensor_view& valid) {
  tensor_view rank4 = valid;
  rank4.rank = 4;
  rank4.extent = {valid.extent[0], 1, 1, valid.extent[1]};
  rank4.stride = {valid.stride[0], 0, 0, valid.stride[1]};
  const dense read = read_dense(rank4);
  std::vector<std::int32_t> ids(read.visible->size());
  std::transform(read.visible->begin(), read.visible->end(), ids.begin(),
                 [](std::uint8_t used) { return used != 0 ? 0 : -1; });
  return std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
}

inline status check_rank(const tensor_view& tensor, int rank, const std::string& name) {
  if (tensor.rank == rank) return {};
  return refusal(name + ": rank is " + std::to_string(tensor.rank) + ", expected " +
                 std::to_string(rank));
}

}  // namespace masks

inline result<mask_info> mask_info::all_visible(std::int64_t batch, std::int64_t q_len,
                                                std::int64_t kv_len) {
  const masks::sizes of{batch, 1, q_len, kv_len};
  if (auto done = masks::check_sizes(of); !done) return done;
  return mask_info(of);
}

inline result<mask_info::id_pair> mask_info::read_pair(const tensor_view& q, const tensor_view& kv,
                                                       const char* q_name,
                                                       const char* kv_name) const {
  const auto check = [&](const tensor_view& ids, const char* name, std::int64_t length) -> status {
    if (auto done = masks::check_readable(ids, name); !done) return done;
    if (auto done = masks::check_rank(ids, 2, name); !done) return done;
    if (ids.type != dtype::i32) {
      return masks::refusal(std::string(name) + ": dtype is " + std::string(name_of(ids.type)) +
                            ", expected i32");
    }
    if (ids.extent[0] != sizes_.batch || ids.extent[1] != length) {
      return masks::refusal(std::string(name) + ": shape is " + masks::extents_text(ids) +
                            ", the mask needs [" + std::to_string(sizes_.batch) + "," +
                            std::to_string(length) + "]");
    }
    return {};
  };
  if (auto done = check(q, q_name, sizes_.q_len); !done) return done;
  id_pair read;
  read.q = masks::read_ids(q);
  if (!kv.present()) {
    if (sizes_.q_len != sizes_.kv_len) {
      return masks::refusal(std::string(kv_name) + ": are needed where q_len is " +
                            std::to_string(sizes_.q_len) + " and kv_len is " +
                            std::to_string(sizes_.kv_len));
    }
    read.kv = read.q;
    return read;
  }
  if (auto done = check(kv, kv_name, sizes_.kv_len); !done) return done;
  read.kv = masks::read_ids(kv);
  return read;
}

inline result<mask_info> mask_info::from_segments(const tensor_view& q_ids,
                                                  const tensor_view& kv_ids,
                                                  const tensor_view& q_positions,
                                                  const tensor_view& kv_positions) {
  if (auto done = masks::check_readable(q_ids, "q_segment_ids"); !done) return done;
  const tensor_view& keys = kv_ids.present() ? kv_ids : q_ids;
  mask_info mask({q_ids.extent[0], 1, q_ids.extent[1], keys.extent[1]});
  if (auto done = mask.apply_segments(q_ids, kv_ids); !done) return done;
  if (q_positions.present() || kv_positions.present()) {
    auto read = mask.read_pair(q_positions, kv_positions, "q_positions", "kv_positions");
    if (!read) return read.failure();
    mask.positions_ = *std::move(read);
  }
  return mask;
}

inline result<mask_info> mask_info::from_validity(const tensor_view& q_valid,
                                                  const tensor_view& kv_valid) {
  if (auto done = masks::check_mask_type(q_valid, "q_valid"); !done) return done;
  if (auto done = masks::check_rank(q_valid, 2, "q_valid"); !done) return done;
  id_pair ids;
  ids.q = ids.kv = masks::ids_of_validity(q_valid);
  masks::sizes of{q_valid.extent[0], 1, q_valid.extent[1], q_valid.extent[1]};
  if (kv_valid.present()) {
    if (auto done = masks::check_mask_type(kv_valid, "kv_valid"); !done) return done;
    if (auto done = masks::check_rank(kv_valid, 2, "kv_valid"); !done) return done;
    if (kv_valid.extent[0] != of.batch) {
      return masks::refusal("kv_valid: batch is " + std::to_string(kv_valid.extent[0]) +
                            ", q_valid has " + std::to_string(of.batch));
    }
    of.kv_len = kv_valid.extent[1];
    ids.kv = masks::ids_of_validity(kv_valid);
  }
  mask_info mask(of);
  mask.terms_.push_back({ids});
  mask.segments_ = std::move(ids);
  return mask;
}

inline result<mask_info> mask_info::from_attention_mask(const tensor_view& mask,
                                                        std::optional<std::int64_t> q_len) {
  if (auto done = masks::check_mask_type(mask, "mask"); !done) return done;
  if (mask.rank < 2 || mask.rank > 4) {
    return masks::refusal("mask: rank is " + std::to_string(mask.rank) + ", it can be 2, 3 or 4");
  }
  if (mask.rank == 2) {
    if (!q_len || *q_len == mask.extent[1]) return from_validity(mask);
    const masks::sizes of{mask.extent[0], 1, *q_len, mask.extent[1]};
    if (auto done = masks::check_sizes(of); !done) return done;
    const std::uint8_t all_valid = 1;
    tensor_view rows = tessera::view(&all_valid, {of.batch, of.q_len}, {0, 0});
    return from_validity(rows, mask);
  }
  const std::size_t rows_axis = mask.rank == 4 ? 2 : 1;
  if (q_len && *q_len != mask.extent[rows_axis]) {
    return masks::refusal("q_len: is " + std::to_string(*q_len) + ", the mask has " +
                          std::to_string(mask.extent[rows_axis]) + " rows");
  }
  tensor_view rank4 = mask;
  if (mask.rank == 3) {
    rank4.rank = 4;
    rank4.extent = {mask.extent[0], 1, mask.extent[1], mask.extent[2]};
    rank4.stride = {mask.stride[0], 0, mask.stride[1], mask.stride[2]};
  }
  mask_info info({rank4.extent[0], 1, rank4.extent[2], rank4.extent[3]});
  if (auto done = info.apply_mask(rank4); !done) return done;
  return info;
}

inline result<mask_info> mask_info::from_random(std::int64_t batch, std::int64_t q_len,
                                                std::int64_t kv_len, double sparsity,
                                                std::uint64_t seed) {
  auto mask = all_visible(batch, q_len, kv_len);
  if (!mask) return mask;
  if (!(sparsity >= 0.0 && sparsity <= 1.0)) {
    return masks::refusal("sparsity: is " + std::to_string(sparsity) + ", it can be 0 to 1");
  }
  std::mt19937_64 random(
      seed);  // its output is fixed by the standard, that of distributions is not
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(batch * q_len * kv_len));
  for (std::uint8_t& is_visible : visible) {
    is_visible = static_cast<double>(random() >> 11) * 0x1p-53 >= sparsity ? 1 : 0;
  }
  masks::dense drawn;
  drawn.extent = {batch, 1, q_len, kv_len};
  drawn.visible = std::make_shared<const std::vector<std::uint8_t>>(std::move(visible));
  mask->terms_.push_back({std::move(drawn)});
  return mask;
}

inline result<mask_info> mask_info::chunked(std::int64_t chunk_size, std::int64_t batch,
                                            std::int64_t q_len, std::int64_t kv_len,
                                            const masks::per_batch& offset) {
  auto mask = all_visible(batch, q_len, kv_len);
  if (!mask) return mask;
  if (auto done = mask->apply_chunked(chunk_size, offset); !done) return done;
  return mask;
}

}  // namespace tessera
