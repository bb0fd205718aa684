// Pages that sequences share: with groups and without them a call means the same, on every row that
// reads pages, and groups that are not there are refused.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
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

std::vector<call_trait> prefixes_of(const operation& op) {
  std::vector<call_trait> traits;
  for (const call_trait& trait : traits_of(op)) {
    const std::string_view name = name_of(op, trait);
    if (name == "cu_prefix_seqs" || name == "prefix_pages") traits.push_back(trait);
  }
  return traits;
}

/// A call of some groups whose sequences reach over many tiles of keys, or null.
std::unique_ptr<call_data> call_with_groups(const tested_row& row, const operation& op,
                                            random_source random, double density) {
  const std::vector<call_trait> traits = prefixes_of(op);
  call_wishes wishes{.traits = traits, .density = density, .work = 4e6, .longest = 4000};
  const auto set = [&](std::string_view symbol, std::int64_t extent) {
    const std::int8_t dim = declared::dim_named(op.form->dims, symbol);
    if (dim >= 0) wishes.extents[static_cast<std::size_t>(dim)] = extent;
  };
  set("N", 6);
  set("F", 3);
  set("M", 24);
  set("T", 16);
  set("Hkv", 2);
  return call_for(row, op, random, wishes);
}

class shared_prefixes : public testing::TestWithParam<std::string_view> {};

TEST_P(shared_prefixes, are_right_on_every_row) {
  int ran = 0;
  for (const tested_row& row : paged_rows()) {
    const operation& op = operation_of(row, GetParam());
    for (std::uint64_t number = 0; number < 4; ++number) {
      const auto data = call_with_groups(row, op, stream(31, number), number < 2 ? 0.0 : 0.2);
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

}  // namespace
}  // namespace tessera::support
