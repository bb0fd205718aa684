#include "layer_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tessera/spec/check.hpp>

#include "../failure.hpp"
#include "tests/reference/elements.hpp"
#include "tests/reference/pool_elements.hpp"
#include "tests/support/call_judge.hpp"

namespace tessera::tool {
namespace {

/// Rows of a sequence that are judged at each of its ends.
constexpr std::int64_t rows_at_end = 2;

/// Elements side by side in a pool or among new tokens.
tensor_view elements_at(const std::byte* data, dtype type) {
  tensor_view elements;
  elements.type = type;
  elements.data = const_cast<std::byte*>(data);
  return elements;
}

/// True if [begin, begin + count) of `held` are the nearest numbers to those of `row` divided by a
/// scale.
bool holds_nearest(const tensor_view& held, const tensor_view& row, std::int64_t begin,
                   std::int64_t count, float scale) {
  for (std::int64_t at = begin; at < begin + count; ++at) {
    const float x = static_cast<float>(reference::read(row, at)) / scale;
    const double written = reference::nearest_element(held.type, static_cast<double>(x));
    if (reference::read(held, at) != written) return false;
  }
  return true;
}

/// What a slot of a pool has to hold of one row of new tokens.
struct slot_check {
  const paged_layer& layer;
  std::size_t pool;  ///< its number
  const slot_part& part;

  const std::byte* at(std::size_t number, std::int64_t slot, std::int64_t column) const {
    const auto element =
        static_cast<std::size_t>(slot * layer.form().pools[number].columns + column);
    return layer.pool(number).data() + element * size_of(layer.pool_type(number));
  }
  /// True if it holds the row: the same bits, or the nearest numbers of a pool of another type, and
  /// the scales of its heads.
  bool holds(std::int64_t slot, const std::byte* row, std::size_t bytes) const {
    const dtype type = layer.pool_type(pool);
    const std::byte* const held = at(pool, slot, part.column);
    if (type == layer.type()) return std::memcmp(held, row, bytes) == 0;
    const tensor_view codes = elements_at(held, type), token = elements_at(row, layer.type());
    const auto count = static_cast<std::int64_t>(bytes / size_of(layer.type()));
    if (!part.scales) return holds_nearest(codes, token, 0, count, 1.0f);
    const tensor_view scales = elements_at(at(*part.scales, slot, 0), dtype::f32);
    const std::int64_t heads = layer.form().pools[*part.scales].columns, width = count / heads;
    for (std::int64_t head = 0; head < heads; ++head) {
      float largest = 0;
      for (std::int64_t d = head * width; d < (head + 1) * width; ++d) {
        largest = std::max(largest, std::abs(static_cast<float>(reference::read(token, d))));
      }
      const float scale = reference::scale_of_largest(largest, 1.0f, type);
      if (static_cast<float>(reference::read(scales, head)) != scale ||
          !holds_nearest(codes, token, head * width, width, scale)) {
        return false;
      }
    }
    return true;
  }
};

/// The first key of a sequence whose slot does not hold what was written there.
std::string lost_key(const paged_layer& layer, const replay::token_range& range,
                     const replay::trace& served) {
  const std::int64_t page_size = served.limits.page_size;
  for (std::int64_t position = 0; position < range.keys(); ++position) {
    const std::uint64_t identity =
        identity_of(served.requests[range.request], range.request, position);
    const auto page = range.pages[static_cast<std::size_t>(position / page_size)];
    const std::int64_t slot = page * page_size + position % page_size;
    for (std::size_t n = 0; n < layer.form().pools.size(); ++n) {
      const pool_form& pool = layer.form().pools[n];
      for (const slot_part& part : pool.parts) {
        const token_rows& rows = layer.fresh_rows(part.tensor);
        const slot_check check{layer, n, part};
        if (check.holds(slot, rows.row(identity), rows.bytes())) continue;
        return fmt::format("{}: page {}, slot {} is not token {} of request {}", pool.name, page,
                           position % page_size, position, range.request + 1);
      }
    }
  }
  return {};
}

/// The last `rows` rows up to key `keys` of one sequence as a call of its own, on copies of its
/// pages, with the part of the output that belongs to it.
class sequence_call {
 public:
  sequence_call(const paged_layer& layer, const std::vector<tensor_view>& whole,
                const replay::token_range& range, std::int64_t first_row, std::int64_t rows,
                std::int64_t keys)
      : layer_(layer),
        tensors_(whole),
        pages_(static_cast<std::int64_t>(range.pages.size())),
        lengths_{static_cast<std::int32_t>(keys)},
        starts_{0, static_cast<std::int32_t>(rows)},
        table_(range.pages.size()) {
    const paged_form& form = layer.form();
    for (const std::vector<token_tensor>* list : {&form.queries, &form.fresh}) {
      for (const token_tensor& tensor : *list) cut(tensor.name, first_row, rows);
    }
    cut(form.out.name, first_row, rows);
    for (std::size_t n = 0; n < form.pools.size(); ++n) copy_pages(n, range);
    std::iota(table_.begin(), table_.end(), 0);
    at(form.table) = view(table_.data(), {1, pages_});
    at(form.lengths) = view(lengths_.data(), {1});
    at("cu_seqlens_q") = view(starts_.data(), {2});
    at(form.count) = view(counts_.data(), {form.counts});
    for (const char* const list : {"cu_prefix_seqs", "prefix_pages"}) leave_out(list);
  }
  sequence_call(const sequence_call&) = delete;
  sequence_call& operator=(const sequence_call&) = delete;

  support::judged_output judged() const {
    bound_call call{.op = &layer_.op(), .tensors = tensors_.data(), .options = layer_.options()};
    status refusal;
    device_id device{};
    if (!checks::is_call(call, &device, refusal)) require(refusal, "the check of a sequence");
    return support::worst_output(call, tensors_.data(), {.rows_per_head = rows_at_end, .heads = 2});
  }

 private:
  tensor_view& at(const std::string& name) {
    const auto forms = layer_.op().form->tensors;
    const auto known = std::ranges::find(forms, name, &tensor_form::name);
    return tensors_[static_cast<std::size_t>(known - forms.begin())];
  }

  /// A tensor that not every operation has.
  void leave_out(std::string_view name) {
    const auto forms = layer_.op().form->tensors;
    const auto known = std::ranges::find(forms, name, &tensor_form::name);
    if (known != forms.end()) tensors_[static_cast<std::size_t>(known - forms.begin())] = {};
  }

  void cut(const std::string& name, std::int64_t first, std::int64_t rows) {
    tensor_view& view = at(name);
    view.data = static_cast<std::byte*>(view.data) +
                first * view.stride[0] * static_cast<std::int64_t>(size_of(view.type));
    view.extent[0] = rows;
  }

  void copy_pages(std::size_t number, const replay::token_range& range) {
    tensor_view& pool = at(layer_.form().pools[number].name);
    const auto bytes = static_cast<std::size_t>(pool.stride[0]) * size_of(pool.type);
    std::vector<std::byte>& copy = copies_.emplace_back();
    for (const replay::page_number page : range.pages) {
      const std::byte* const from =
          static_cast<const std::byte*>(pool.data) + static_cast<std::size_t>(page) * bytes;
      copy.insert(copy.end(), from, from + bytes);
    }
    pool.data = copy.data();
    pool.extent[0] = pages_;
  }

  const paged_layer& layer_;
  std::vector<tensor_view> tensors_;
  std::int64_t pages_;
  std::array<std::int32_t, 1> lengths_;
  std::array<std::int32_t, 2> starts_;
  std::array<std::int32_t, 3> counts_{1, 1, 1};
  std::vector<std::int32_t> table_;
  std::vector<std::vector<std::byte>> copies_;
};

layer_verdict verdict_on(const paged_layer& layer, const std::vector<tensor_view>& whole,
                         const replay::token_range& range, std::int64_t first_row) {
  layer_verdict verdict{.sequences = 1};
  const std::int64_t rows = std::min(range.tokens, rows_at_end);
  for (const std::int64_t begin : {std::int64_t{0}, range.tokens - rows}) {
    const sequence_call part(layer, whole, range, first_row + begin, rows,
                             range.begin + begin + rows);
    const support::judged_output judged = part.judged();
    layer_verdict rows_verdict{.worst = judged.found};
    if (!judged.found.passed) {
      rows_verdict.complaint =
          fmt::format("request {}, tokens {} to {}: {}", range.request + 1, range.begin + begin,
                      range.begin + begin + rows - 1, judged.complaint());
    }
    verdict.add(rows_verdict);
    if (range.tokens <= rows) break;
  }
  return verdict;
}

double excess(const support::comparison& found) {
  if (!found.specials_agree) return HUGE_VAL;
  return found.bound > 0 ? found.error / found.bound : found.error;
}

}  // namespace

void layer_verdict::add(const layer_verdict& other) {
  sequences += other.sequences;
  if (excess(other.worst) > excess(worst) || worst.bound == 0) worst = other.worst;
  if (complaint.empty()) complaint = other.complaint;
}

layer_verdict checked(const paged_layer& layer, const step_lists& lists, const replay::step& step,
                      const replay::trace& served) {
  layer_verdict all;
  const std::vector<tensor_view> whole = layer.call(lists, step.tokens);
  std::int64_t first_row = 0;
  for (const replay::token_range& range : step.ranges) {
    layer_verdict sequence = verdict_on(layer, whole, range, first_row);
    if (std::string lost = lost_key(layer, range, served); !lost.empty()) {
      sequence.complaint = std::move(lost);
    }
    all.add(sequence);
    first_row += range.tokens;
  }
  return all;
}

}  // namespace tessera::tool
