// What tests need to know of ragged_decode_attention: each range of keys as a sequence of its own.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/ragged_decode_declaration.hpp>

#include "../support/random.hpp"
#include "attention_outputs.hpp"
#include "flash_attention.hpp"
#include "operations.hpp"
#include "row_facts.hpp"
#include "sampled_rows.hpp"
#include "store.hpp"
#include "visible_pairs.hpp"

namespace tessera::reference {
namespace {

const ragged_decode_args& args_of(const bound_call& call) {
  return *reinterpret_cast<const ragged_decode_args*>(call.tensors);
}

consteval std::size_t number_of(std::string_view name) {
  return static_cast<std::size_t>(
      declared::index_of(ragged_decode_table::form.tensors, name, &tensor_form::name));
}

std::int64_t entry_of(const tensor_view& numbers, std::int64_t entry) {
  return static_cast<std::int64_t>(read(numbers, entry * numbers.stride[0]));
}
/// The first key of an entry.
std::int64_t start_of(const ragged_decode_args& args, std::int64_t entry) {
  return std::max<std::int64_t>(entry_of(args.kv_start, entry), 0);
}

/// Keys of an entry inside range, tensor and the window to the left.
struct key_range {
  std::int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};
key_range keys_of(const ragged_decode_args& args, const ragged_decode_options& wanted,
                  std::int64_t entry) {
  const std::int64_t position = entry_of(args.kv_end, entry) - 1;
  key_range keys{start_of(args, entry), std::min(position + 1, args.k.extent[1])};
  if (wanted.window_left && *wanted.window_left < position) {
    keys.begin = std::max(keys.begin, position - *wanted.window_left);
  }
  return keys;
}

/// The call as one of dense entries with lengths. A range that ends behind the tensor has keys
/// there that a mask hides, so that its row stands where it should.
class dense_ranges {
 public:
  explicit dense_ranges(const ragged_decode_args& args) : given_(args) {
    const std::int64_t entries = args.q.extent[0];
    for (std::int64_t b = 0; b < entries; ++b) {
      const std::int64_t length =
          std::max<std::int64_t>(entry_of(args.kv_end, b) - start_of(args, b), 0);
      lengths_.push_back(static_cast<std::int32_t>(length));
      longest_ = std::max(longest_, length);
    }
    gather(args.k, dense_.k, keys_);
    gather(args.v, dense_.v, values_);
    hide_what_is_not_there();
    dense_.q = with_axis(args.q, 1);
    dense_.out = with_axis(args.out, 1);
    if (args.lse.present()) dense_.lse = with_axis(args.lse, 2);
    dense_.sinks = args.sinks;
    dense_.seqlens_k = view(lengths_.data(), {entries});
  }
  dense_ranges(const dense_ranges&) = delete;
  dense_ranges& operator=(const dense_ranges&) = delete;

  const flash_attention_args& args() const noexcept { return dense_; }

 private:
  static tensor_view with_axis(const tensor_view& from, std::size_t added) {
    tensor_view to = from;
    ++to.rank;
    for (std::size_t axis = 0, at = 0; axis < static_cast<std::size_t>(to.rank); ++axis) {
      to.extent[axis] = axis == added ? 1 : from.extent[at];
      to.stride[axis] = axis == added ? 0 : from.stride[at];
      if (axis != added) ++at;
    }
    return to;
  }

  /// Key j of an entry is key kv_start + j of the tensor; zeros behind it.
  void gather(const tensor_view& from, tensor_view& to, std::vector<std::byte>& memory) {
    to = without_memory(from);
    to.extent[1] = longest_;
    to.stride = contiguous_strides(to.extent, to.rank);
    const std::size_t bytes = size_of(from.type);
    memory.assign(std::max<std::size_t>(static_cast<std::size_t>(to.elements()) * bytes, 1),
                  std::byte{});
    to.data = memory.data();
    for (std::int64_t b = 0; b < to.extent[0]; ++b) {
      const std::int64_t start = start_of(given_, b);
      const std::int64_t there =
          std::min<std::int64_t>(lengths_[static_cast<std::size_t>(b)], from.extent[1] - start);
      for (std::int64_t j = 0; j < there; ++j) {
        for (std::int64_t h = 0; h < to.extent[2]; ++h) {
          const std::int64_t source =
              b * from.stride[0] + (start + j) * from.stride[1] + h * from.stride[2];
          const std::int64_t target = b * to.stride[0] + j * to.stride[1] + h * to.stride[2];
          std::memcpy(
              memory.data() + static_cast<std::size_t>(target) * bytes,
              static_cast<const std::byte*>(from.data) + source * static_cast<std::int64_t>(bytes),
              static_cast<std::size_t>(to.extent[3]) * bytes);
        }
      }
    }
  }

  void hide_what_is_not_there() {
    const std::int64_t entries = given_.q.extent[0];
    for (std::int64_t b = 0; b < entries; ++b) {
      const std::int64_t start = start_of(given_, b);
      for (std::int64_t j = 0; j < longest_; ++j) {
        mask_.push_back(start + j < given_.k.extent[1] ? 1 : 0);
      }
    }
    if (longest_ > 0) dense_.mask = view(mask_.data(), {entries, 1, 1, longest_});
  }

  const ragged_decode_args& given_;
  flash_attention_args dense_;
  std::int64_t longest_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::byte> keys_, values_;
  std::vector<std::uint8_t> mask_;
};

flash_attention_options dense_options(const ragged_decode_options& wanted) {
  flash_attention_options dense;
  dense.softmax_scale = wanted.softmax_scale;
  dense.window_left = wanted.window_left;
  dense.window_right = wanted.window_right;
  dense.logits_soft_cap = wanted.logits_soft_cap;
  return dense;
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const dense_ranges dense(args_of(call));
  const flash_attention_options wanted = dense_options(call.options_as<ragged_decode_options>());
  return expected_out_and_lse(flash_attention<Precision>(dense.args(), wanted), call,
                              number_of("out"), number_of("lse"));
}

/// Bounds from before the tensor to a little behind it.
bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  if (tensor != number_of("kv_start") && tensor != number_of("kv_end")) return false;
  const tensor_view& bounds = call.tensors[tensor];
  const std::int64_t keys = call.tensors[number_of("k")].extent[1];
  const std::int64_t usual = tensor == number_of("kv_end") ? keys : 0;
  for (std::int64_t b = 0; b < bounds.extent[0]; ++b) {
    const std::int64_t bound = random.chance(0.3) ? usual : random.between(-1, keys + 3);
    store(bounds, b * bounds.stride[0], static_cast<double>(bound));
  }
  return true;
}

/// A batch that is padded on the left by up to a quarter.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t,
                support::random_source& random) {
  const std::int64_t keys = call.tensors[number_of("k")].extent[1];
  if (tensor == number_of("kv_end")) return static_cast<double>(keys);
  if (tensor == number_of("kv_start")) return static_cast<double>(random.below(keys / 4 + 1));
  return static_cast<double>(random.bell());
}

output_sample sample(const bound_call& call, const tensor_view* computed, const sample_plan& plan) {
  ragged_decode_args shown = args_of(call);
  shown.out = computed[number_of("out")];
  const dense_ranges dense(shown);
  return sampled_rows(dense.args(), dense_options(call.options_as<ragged_decode_options>()),
                      number_of("out"), plan);
}

void count(const bound_call& call, call_work& work) {
  const ragged_decode_args& args = args_of(call);
  const auto& wanted = call.options_as<ragged_decode_options>();
  attention_counts counts;
  const std::int64_t entries = args.q.extent[0];
  for (std::int64_t b = 0; b < entries; ++b) {
    const bool known = args.kv_end.data != nullptr;
    const key_range keys = known ? keys_of(args, wanted, b) : key_range{0, args.k.extent[1]};
    if (!keys.empty()) counts.seen_keys += static_cast<double>(keys.end - keys.begin);
  }
  counts.visible_pairs = counts.seen_keys * static_cast<double>(args.q.extent[1]);
  counts.flops =
      counts.visible_pairs * 2.0 * static_cast<double>(args.q.extent[2] + args.v.extent[3]);
  put_counts(counts, static_cast<double>(entries * args.k.extent[1]), args.k.extent[2], args.k,
             args.v, work);
}

/// Keys inside range and window, and the queries of entries that have some.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const ragged_decode_args& args = args_of(call);
  const auto& wanted = call.options_as<ragged_decode_options>();
  constexpr std::array both{number_of("k"), number_of("v")};
  seen_elements& queries = seen[number_of("q")];
  queries = seen_elements(args.q);
  for (const std::size_t tensor : both) seen[tensor] = seen_elements(call.tensors[tensor]);
  for (std::int64_t b = 0; b < args.q.extent[0]; ++b) {
    const ragged_decode_options unwindowed;
    if (keys_of(args, unwindowed, b).empty()) continue;
    for (std::int64_t h = 0; h < args.q.extent[1]; ++h) {
      queries.mark(b * args.q.stride[0] + h * args.q.stride[1], args.q.extent[2]);
    }
    const key_range keys = keys_of(args, wanted, b);
    for (const std::size_t tensor : both) {
      const tensor_view& view = call.tensors[tensor];
      for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        for (std::int64_t h = 0; h < view.extent[2]; ++h) {
          seen[tensor].mark(b * view.stride[0] + j * view.stride[1] + h * view.stride[2],
                            view.extent[3]);
        }
      }
    }
  }
}

constexpr std::array table{operation_reference{.op = "ragged_decode_attention",
                                               .exact = &evaluated<exact>,
                                               .as_stored = &evaluated<as_stored>,
                                               .fill = &fill,
                                               .mark_seen = &mark_seen,
                                               .row_extent = &head_dim_of_row<attention_config>,
                                               .ordinary = &ordinary,
                                               .sample = &sample,
                                               .count = &count}};

}  // namespace

std::span<const operation_reference> ragged_decode_references() noexcept {
  return table;
}

}  // namespace tessera::reference
