// What tests need to know of the operations on caches of keys and values: where every token goes,
// written as the documentation says it, element by element.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/families/kv_cache/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "pool_elements.hpp"

namespace tessera::reference {
namespace {

using args = kv_cache_args;
using options = kv_cache_options;

const args& args_of(const bound_call& call) {
  return *reinterpret_cast<const args*>(call.tensors);
}

std::int64_t number(const tensor_view& list, std::int64_t entry) {
  return static_cast<std::int64_t>(read(list, entry * list.stride[0]));
}

/// A pool, its elements found by page, slot of a page, head and column.
struct paged_pool {
  std::size_t tensor = 0;
  const tensor_view& view;
  const options& wanted;

  /// In row-major order of the tensor; `channel`: 0 keys, 1 values, of pools of both.
  std::array<std::int64_t, max_rank> index(std::int64_t page, std::int64_t slot, std::int64_t head,
                                           std::int64_t channel, std::int64_t column) const {
    switch (wanted.pool_layout) {
      case cache_layout::PHTD:
        return {page, head, slot, column};
      case cache_layout::HPTD:
        return {head, page, slot, column};
      case cache_layout::PTHD:
        return {page, slot, head, column};
      case cache_layout::PT_HD:
        return {page * wanted.page_size + slot, head, column};
      case cache_layout::PTCD:
        return {page, slot, 2 * head + channel, column};
      case cache_layout::PTCLD:
        break;
    }
    const std::int64_t lanes = view.extent[3], at = 2 * head + channel;
    return {page, slot, at / lanes, at % lanes, column};
  }
  std::int64_t page_size() const {
    switch (wanted.pool_layout) {
      case cache_layout::PHTD:
      case cache_layout::HPTD:
        return view.extent[2];
      case cache_layout::PT_HD:
        return wanted.page_size;
      default:
        return view.extent[1];
    }
  }
  std::size_t flat(const std::array<std::int64_t, max_rank>& at) const {
    std::int64_t place = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
      place = place * view.extent[axis] + at[axis];
    }
    return static_cast<std::size_t>(place);
  }
  /// Columns that a head has in the pool, and heads that a slot has room for.
  std::int64_t width() const { return view.extent[static_cast<std::size_t>(view.rank - 1)]; }
  std::int64_t heads(std::int64_t given) const {
    if (wanted.pool_layout != cache_layout::PTCLD) return given;
    return view.extent[2] * view.extent[3] / 2;
  }
};

/// Where tokens go.
class append_definition {
 public:
  explicit append_definition(const bound_call& call)
      : args_(args_of(call)), wanted_(call.options_as<options>()) {}

  /// visit(token, page, slot) for each token that some sequence in use has.
  template <class Visit>
  void for_each_token(const Visit& visit) const {
    const tensor_view& pool = args_.kv_pages.present() ? args_.kv_pages : args_.k_pages;
    const std::int64_t page_size = paged_pool{0, pool, wanted_}.page_size();
    std::int64_t sequences = args_.block_table.extent[0];
    if (args_.num_seqs.present()) sequences = number(args_.num_seqs, 0);
    for (std::int64_t n = 0; n < sequences; ++n) {
      const bool packed = args_.cu_seqlens_q.present();
      const std::int64_t first = packed ? number(args_.cu_seqlens_q, n) : n;
      const std::int64_t count = packed ? number(args_.cu_seqlens_q, n + 1) - first : 1;
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t key = number(args_.seqlens_k, n) - count + t;
        visit(first + t, static_cast<std::int64_t>(at(args_.block_table, n, key / page_size)),
              key % page_size);
      }
    }
  }

  /// Writes keys (channel 0) or values into what a pool held before, and their scales, where tokens
  /// have some, into what those were.
  void write(const paged_pool& pool, std::int64_t channel, std::vector<double>& values,
             std::vector<double>& token_scales) const {
    const tensor_view& from = channel == 0 ? args_.k_new : args_.v_new;
    const tensor_view& scales = channel == 0 ? args_.k_scales : args_.v_scales;
    const auto scale = static_cast<float>(channel == 0 ? wanted_.k_scale : wanted_.v_scale);
    for_each_token([&](std::int64_t token, std::int64_t page, std::int64_t slot) {
      for (std::int64_t h = 0; h < pool.heads(from.extent[1]); ++h) {
        float by = scale;
        if (h < from.extent[1]) {
          if (scales.present()) by *= static_cast<float>(read(scales, h * scales.stride[0]));
          if (!token_scales.empty()) {
            const float own = scale_of_new_row(from, token * from.stride[0] + h * from.stride[1],
                                               by, pool.view.type);
            const std::int64_t heads = from.extent[1];
            token_scales[static_cast<std::size_t>((page * pool.page_size() + slot) * heads + h)] =
                static_cast<double>(own);
            by *= own;
          }
        }
        for (std::int64_t d = 0; d < pool.width(); ++d) {
          double value = 0;
          if (h < from.extent[1] && d < from.extent[2]) {
            const auto x = static_cast<float>(element(from, token, h, d));
            value = static_cast<double>(by == 1.0f ? x : x / by);
          }
          values[pool.flat(pool.index(page, slot, h, channel, d))] =
              nearest_element(pool.view.type, value);
        }
      }
    });
  }

 private:
  static double element(const tensor_view& view, std::int64_t token, std::int64_t head,
                        std::int64_t column) {
    return read(view, token * view.stride[0] + head * view.stride[1] + column * view.stride[2]);
  }

  const args& args_;
  const options& wanted_;
};

constexpr std::array<std::size_t, 3> pools{2, 3, 4};        // k_pages, v_pages, kv_pages
constexpr std::array<std::size_t, 2> token_scales{13, 14};  // k_token_scales, v_token_scales

expected_tensors appended(const bound_call& call) {
  const append_definition definition(call);
  const auto& wanted = call.options_as<options>();
  expected_tensors all;
  std::array<std::vector<double>, 2> scales;
  for (const std::size_t half : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t tensor = token_scales[half];
    if (call.has(tensor)) scales[half] = to_doubles(call.tensors[tensor]);
  }
  for (const std::size_t tensor : pools) {
    if (!call.has(tensor)) continue;
    const paged_pool pool{tensor, call.tensors[tensor], wanted};
    std::vector<double> values = to_doubles(pool.view);
    if (tensor != 3) definition.write(pool, 0, values, scales[0]);
    if (tensor != 2) definition.write(pool, 1, values, scales[1]);
    all.push_back({.tensor = tensor, .values = std::move(values), .copied = true});
  }
  for (const std::size_t half : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t tensor = token_scales[half];
    if (!call.has(tensor)) continue;
    all.push_back({.tensor = tensor, .values = std::move(scales[half]), .copied = true});
  }
  return all;
}

/// New tokens that some sequence has; pools are not read at all.
void mark_appended(const bound_call& call, seen_tensors seen) {
  const args& given = args_of(call);
  seen[0] = seen_elements(given.k_new);
  seen[1] = seen_elements(given.v_new);
  append_definition(call).for_each_token([&](std::int64_t token, std::int64_t, std::int64_t) {
    for (std::size_t tensor : {std::size_t{0}, std::size_t{1}}) {
      const tensor_view& view = call.tensors[tensor];
      for (std::int64_t h = 0; h < view.extent[1]; ++h) {
        seen[tensor].mark(token * view.stride[0] + h * view.stride[1], view.extent[2]);
      }
    }
  });
  for (const std::size_t tensor : pools) {
    if (call.has(tensor)) seen[tensor] = seen_elements(call.tensors[tensor]);
  }
  for (const std::size_t tensor : token_scales) {
    if (call.has(tensor)) seen[tensor] = seen_elements(call.tensors[tensor]);
  }
  for (const std::size_t scales : {std::size_t{9}, std::size_t{10}}) {
    if (!call.has(scales)) continue;
    seen[scales] = seen_elements(call.tensors[scales]);
    for (std::int64_t h = 0; h < call.tensors[scales].extent[0]; ++h) {
      seen[scales].mark(h * call.tensors[scales].stride[0]);
    }
  }
}

/// Scales are positive.
bool fill_scales(const bound_call& call, std::size_t tensor, support::random_source& random) {
  if (!call.form().tensors[tensor].name.ends_with("_scales")) return false;
  for_each_element(call.tensors[tensor], [&](std::int64_t, std::int64_t offset) {
    store(call.tensors[tensor], offset, random.pick({0.5, 1.0, 0.03, 2.7}));
  });
  return true;
}
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t,
                support::random_source& random) {
  if (call.form().tensors[tensor].name.ends_with("_scales")) return 0.5;
  return static_cast<double>(random.bell());
}

expected_tensors copied(const bound_call& call) {
  const args& given = args_of(call);
  const auto& wanted = call.options_as<options>();
  expected_tensors all;
  for (const std::size_t tensor : pools) {
    if (!call.has(tensor)) continue;
    const tensor_view& view = call.tensors[tensor];
    const std::vector<double> before = to_doubles(view);
    std::vector<double> values = before;
    const bool slots = wanted.pool_layout == cache_layout::PT_HD;
    const auto axis = static_cast<std::size_t>(wanted.pool_layout == cache_layout::HPTD ? 1 : 0);
    std::int64_t inner = slots ? wanted.page_size : 1;  // elements behind the axis of pages
    for (std::size_t a = axis + 1; a < static_cast<std::size_t>(view.rank); ++a) {
      inner *= view.extent[a];
    }
    const std::int64_t outer = axis == 1 ? view.extent[0] : 1;
    const std::int64_t page_count = slots ? view.extent[0] / wanted.page_size : view.extent[axis];
    for (std::int64_t n = 0; n < given.source_pages.extent[0]; ++n) {
      const std::int64_t from = number(given.source_pages, n), to = number(given.target_pages, n);
      for (std::int64_t i = 0; i < outer; ++i) {
        const auto begin = before.begin() + (i * page_count + from) * inner;
        std::copy(begin, begin + inner, values.begin() + (i * page_count + to) * inner);
      }
    }
    all.push_back({.tensor = tensor, .values = std::move(values), .copied = true});
  }
  return all;
}

/// Every page may be copied.
void mark_copied(const bound_call& call, seen_tensors seen) {
  for (const std::size_t tensor : pools) {
    if (!call.has(tensor)) continue;
    seen[tensor] = seen_elements(call.tensors[tensor]);
    for_each_element(call.tensors[tensor],
                     [&](std::int64_t, std::int64_t offset) { seen[tensor].mark(offset); });
  }
}

/// New tokens are read, and written in the pool's type; what else a slot holds counts too.
void count_appended(const bound_call& call, call_work& work) {
  const args& given = args_of(call);
  const auto bytes = [](const tensor_view& view) {
    return static_cast<double>(view.elements()) * static_cast<double>(size_of(view.type));
  };
  const tensor_view& pool = given.kv_pages.present() ? given.kv_pages : given.k_pages;
  const double elements = static_cast<double>(given.k_new.elements() + given.v_new.elements());
  work.flops = elements;
  work.bytes =
      bytes(given.k_new) + bytes(given.v_new) + elements * static_cast<double>(size_of(pool.type));
}
void count_copied(const bound_call& call, call_work& work) {
  work.bytes = 0;
  const args& given = args_of(call);
  const auto& wanted = call.options_as<options>();
  for (const std::size_t tensor : pools) {
    if (!call.has(tensor)) continue;
    work.bytes += 2.0 * static_cast<double>(given.source_pages.extent[0]) *
                  static_cast<double>(page_elements(call.tensors[tensor], wanted)) *
                  static_cast<double>(size_of(call.tensors[tensor].type));
  }
  work.flops = work.bytes;
}

constexpr std::array table{operation_reference{.op = "kv_cache_append",
                                               .exact = &appended,
                                               .fill = &fill_scales,
                                               .mark_seen = &mark_appended,
                                               .ordinary = &ordinary,
                                               .count = &count_appended},
                           operation_reference{.op = "kv_cache_copy",
                                               .exact = &copied,
                                               .mark_seen = &mark_copied,
                                               .count = &count_copied}};

}  // namespace

std::span<const operation_reference> kv_cache_references() noexcept {
  return table;
}

}  // namespace tessera::reference
