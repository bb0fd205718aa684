// Sequences in pages, on every row that reads them: with groups that share pages and without them a
// call means the same, and what lists say behind the sequences in use is nobody's.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/declaration_text.hpp>

#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

/// Rows of attention that read pages and run here.
std::vector<tested_row> paged_rows() {
  std::vector<tested_row> rows;
  for (const tested_row& row : tested_rows()) {
    if (row.row->family != "attention" || !runs_here(row.row->target)) continue;
    if (are_paged(row.row->config_as<attention_config>().keys)) rows.push_back(row);
  }
  return rows;
}

const operation& operation_of(const tested_row& row, std::string_view name) {
  for (const operation& op : row.kind->operations) {
    if (op.name == name) return op;
  }
  throw std::string(name);
}

std::vector<call_trait> traits_named(const operation& op, std::span<const std::string_view> names) {
  std::vector<call_trait> traits;
  for (const call_trait& trait : traits_of(op)) {
    if (std::ranges::find(names, name_of(op, trait)) != names.end()) traits.push_back(trait);
  }
  return traits;
}

/// Tensors that a call has, and how large some dims are.
struct batch_wishes {
  std::span<const std::string_view> tensors;
  std::initializer_list<std::pair<std::string_view, std::int64_t>> extents;
  double density = 0.0;  ///< of other traits
};

/// Such a call, or null.
std::unique_ptr<call_data> call_of(const tested_row& row, const operation& op, random_source random,
                                   const batch_wishes& batch) {
  const std::vector<call_trait> traits = traits_named(op, batch.tensors);
  call_wishes wishes{.traits = traits, .density = batch.density, .work = 4e6, .longest = 4000};
  for (const auto& [symbol, extent] : batch.extents) {
    const std::int8_t dim = declared::dim_named(op.form->dims, symbol);
    if (dim >= 0) wishes.extents[static_cast<std::size_t>(dim)] = extent;
  }
  return call_for(row, op, random, wishes);
}

constexpr std::array<std::string_view, 2> prefix_tensors{"cu_prefix_seqs", "prefix_pages"};
constexpr std::array<std::string_view, 1> count_tensors{"num_seqs"};

class shared_prefixes : public testing::TestWithParam<std::string_view> {};

TEST_P(shared_prefixes, are_right_on_every_row) {
  int ran = 0;
  for (const tested_row& row : paged_rows()) {
    const operation& op = operation_of(row, GetParam());
    for (std::uint64_t number = 0; number < 4; ++number) {
      // Sequences that reach over many tiles of keys.
      const auto data = call_of(row, op, stream(31, number),
                                {.tensors = prefix_tensors,
                                 .extents = {{"N", 6}, {"F", 3}, {"M", 24}, {"T", 16}, {"Hkv", 2}},
                                 .density = number < 2 ? 0.0 : 0.2});
      if (data == nullptr) continue;
      ++ran;
      const call_expectation expectation(data->call());
      std::vector<std::vector<std::byte>> first;
      for (const int threads : {1, 3}) {
        EXPECT_EQ(complaints_of_call(*row.kind, *data, expectation,
                                     {.row = row.row->name, .threads = threads}, first),
                  "")
            << row.row->name << ": " << data->text();
      }
      EXPECT_EQ(complaints_of_plan(*row.kind, *data, expectation, {.row = row.row->name}), "")
          << row.row->name << ": " << data->text();
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(operations, shared_prefixes,
                         testing::Values("page_attention", "decode_attention", "unified_attention",
                                         "chunked_prefill_paged_decode", "ragged_page_attention_v2",
                                         "ragged_page_attention_v3"),
                         [](const auto& named) { return std::string(named.param); });

class sequences_in_use : public testing::TestWithParam<std::string_view> {};

/// Lists behind the sequences in use hold anything (call_contents.cpp): no row may take offsets
/// there for rows of q.
TEST_P(sequences_in_use, are_all_that_a_row_looks_at) {
  int ran = 0;
  for (const tested_row& row : paged_rows()) {
    const operation& op = operation_of(row, GetParam());
    for (std::uint64_t number = 0; number < 6; ++number) {
      const auto data = call_of(
          row, op, stream(37, number),
          {.tensors = count_tensors, .extents = {{"N", 9}, {"M", 12}, {"T", 16}, {"Hkv", 1}}});
      if (data == nullptr) continue;
      ++ran;
      const call_expectation expectation(data->call());
      EXPECT_EQ(complaints_of_plan(*row.kind, *data, expectation, {.row = row.row->name}), "")
          << row.row->name << ": " << data->text();
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(operations, sequences_in_use,
                         testing::Values("unified_attention", "chunked_prefill_paged_decode",
                                         "ragged_page_attention_v2", "ragged_page_attention_v3"),
                         [](const auto& named) { return std::string(named.param); });

}  // namespace
}  // namespace tessera::support
