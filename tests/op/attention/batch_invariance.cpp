// The policy batch_invariant: on every row that promises it, each sequence of a batch over pages
// has the bits that it has alone, whoever shares its pages.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/unified_attention.hpp>

#include "tests/reference/store.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t sequences = 64, q_heads = 8, kv_heads = 2, page_size = 16, slots = 40;
constexpr std::int64_t pages = sequences * slots;
constexpr selection_policy invariant{.promise = bits_promise::batch_invariant};

/// 64 sequences, of one token each or of some, whose first pages are the same in pairs.
class batch {
 public:
  batch(dtype type, std::int64_t head_dim, bool decodes) : type_(type), head_dim_(head_dim) {
    random_source random(17);
    for (std::int64_t n = 0; n < sequences; ++n) {
      const std::int64_t rows = decodes ? 1 : random.between(1, 9);
      offsets_.push_back(offsets_.back() + static_cast<std::int32_t>(rows));
      lengths_.push_back(
          static_cast<std::int32_t>(random.between(rows, n % 5 == 0 ? slots * page_size : 90)));
    }
    for (std::int64_t at = 0; at < pages; ++at) {
      table_.push_back(static_cast<std::int32_t>(at * 7 % pages));
    }
    const std::int64_t token = kv_heads * head_dim;
    fill(q_, offsets_.back() * q_heads * head_dim, random);
    fill(k_, pages * page_size * token, random);
    fill(v_, pages * page_size * token, random);
    out_.resize(q_.size());
  }

  std::int64_t tokens() const { return offsets_.back(); }
  std::size_t row_bytes() const {
    return static_cast<std::size_t>(q_heads * head_dim_) * size_of(type_);
  }
  std::int64_t first_row(std::int64_t n) const { return offsets_[static_cast<std::size_t>(n)]; }

  /// `count` sequences from `first` on, whose rows begin at 0 in `offsets`.
  unified_attention_args part(std::int64_t first, std::int64_t count,
                              std::vector<std::int32_t>& offsets) {
    offsets.clear();
    for (std::int64_t n = first; n <= first + count; ++n) {
      offsets.push_back(static_cast<std::int32_t>(first_row(n) - first_row(first)));
    }
    const std::int64_t rows = offsets.back();
    const std::size_t skipped = static_cast<std::size_t>(first_row(first)) * row_bytes();
    const auto pool = [&](std::vector<std::byte>& memory) {
      return typed(memory.data(), {pages, page_size, kv_heads, head_dim_});
    };
    return {.q = typed(q_.data() + skipped, {rows, q_heads, head_dim_}),
            .k_pages = pool(k_),
            .v_pages = pool(v_),
            .block_table = view(table_.data() + first * slots, {count, slots}),
            .seqlens_k = view(lengths_.data() + first, {count}),
            .cu_seqlens_q = view(offsets.data(), {count + 1}),
            .out = typed(out_.data() + skipped, {rows, q_heads, head_dim_})};
  }
  const std::vector<std::byte>& out() const { return out_; }
  void clear() { std::ranges::fill(out_, std::byte{0xee}); }

 private:
  tensor_view typed(void* data, std::initializer_list<std::int64_t> extent) const {
    tensor_view elements = shaped(type_, extent);
    elements.data = data;
    elements.stride = contiguous_strides(elements.extent, elements.rank);
    return elements;
  }
  void fill(std::vector<std::byte>& memory, std::int64_t elements, random_source& random) const {
    memory.resize(static_cast<std::size_t>(elements) * size_of(type_));
    tensor_view all = typed(memory.data(), {elements});
    for (std::int64_t at = 0; at < elements; ++at) reference::store(all, at, random.bell());
  }

  dtype type_;
  std::int64_t head_dim_;
  std::vector<std::int32_t> offsets_{0}, lengths_, table_;
  std::vector<std::byte> q_, k_, v_, out_;
};

status run(const tested_row& row, const unified_attention_args& args) {
  const unified_problem problem = problem_of(args, {});
  return call_here(*row.kind, view_of(problem), {.row = row.row->name, .policy = invariant});
}

void expect_the_bits_alone(const tested_row& row, dtype type, std::int64_t head_dim) {
  const bool decodes = row.row->config_as<attention_config>().phase == attention_phase::decode;
  batch all(type, head_dim, decodes);
  std::vector<std::int32_t> offsets;
  all.clear();
  const status done = run(row, all.part(0, sequences, offsets));
  ASSERT_TRUE(done) << done.message();
  const std::vector<std::byte> together = all.out();
  for (const std::int64_t count : {1, 2, 7, 31}) {
    all.clear();
    for (std::int64_t first = 0; first < sequences; first += count) {
      const std::int64_t size = std::min(count, sequences - first);
      ASSERT_TRUE(run(row, all.part(first, size, offsets)));
      if (count == 1 && first == 20) break;  // what few sequences prove, more do not prove better
    }
    const auto rows = count == 1 ? all.first_row(21) : all.tokens();
    EXPECT_EQ(std::memcmp(together.data(), all.out().data(),
                          static_cast<std::size_t>(rows) * all.row_bytes()),
              0)
        << count << " sequences at a time";
  }
}

TEST(batch_invariance, sequences_have_the_bits_that_they_have_alone) {
  int ran = 0;
  for (const tested_row& row : tested_rows()) {
    if (row.row->family != "attention" || !runs_here(row.row->target)) continue;
    const auto& config = row.row->config_as<attention_config>();
    if (config.keys != key_storage::paged ||
        row.row->properties.batch_invariant == batch_invariance::none) {
      continue;
    }
    SCOPED_TRACE(row.row->name);
    ++ran;
    expect_the_bits_alone(row, config.type, config.head_dim != 0 ? config.head_dim : 80);
    if (HasFailure()) return;
  }
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace tessera::support
