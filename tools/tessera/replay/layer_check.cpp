#include "layer_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
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

/// True if the elements at `held` are those of a row of new tokens, of `bytes` bytes: the same
/// bits, or the nearest numbers of a pool of another type.
bool holds(const paged_layer& layer, const std::byte* held, const std::byte* row,
           std::size_t bytes) {
  if (layer.pool_type() == layer.type()) return std::memcmp(held, row, bytes) == 0;
  tensor_view slot, token;
  slot.type = layer.pool_type(), token.type = layer.type();
  slot.data = const_cast<std::byte*>(held), token.data = const_cast<std::byte*>(row);
  for (std::size_t n = 0; n < bytes / size_of(layer.type()); ++n) {
    const auto at = static_cast<std::int64_t>(n);
    const double written = reference::nearest_element(slot.type, reference::read(token, at));
    if (reference::read(slot, at) != written) return false;
  }
  return true;
}

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
        const auto at = static_cast<std::size_t>(slot * pool.columns + part.column);
        const std::byte* const held = layer.pool(n).data() + at * size_of(layer.pool_type());
        if (holds(layer, held, rows.row(identity), rows.bytes())) continue;
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
  tensor_view& at(const std::string& name) { return tensors_[layer_.number_of(name)]; }

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
