// Latent attention where only a device has something to prove: several blocks of rows against
// several tiles and splits of latents in pages, and prompts of several tiles each way.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/latent_attention.hpp>

#include "tests/support/call_data.hpp"
#include "tests/support/call_problem.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

/// Extents of each axis, by its name in the operations that have it.
struct axis_extent {
  std::string_view op;
  std::string_view symbol;
  std::int64_t extent = 0;
};
constexpr axis_extent extents[] = {
    {"flash_mla_decode", "B", 3},
    {"flash_mla_decode", "Sq", 3},
    {"flash_mla_decode", "H", 48},
    {"flash_mla_decode", "T", 16},
    {"flash_mla_decode", "M", 60},
    {"multi_latent_ragged_page_attention", "N", 4},
    {"multi_latent_ragged_page_attention", "Tq", 90},
    {"multi_latent_ragged_page_attention", "H", 5},
    {"multi_latent_ragged_page_attention", "U", 8},
    {"multi_latent_ragged_page_attention", "M", 40},
    {"flash_mla", "B", 2},
    {"flash_mla", "Hkv", 2},
    {"flash_mla", "S", 150},
    {"flash_mla_backward", "B", 2},
    {"flash_mla_backward", "Hkv", 2},
    {"flash_mla_backward", "S", 150},
    {"deepseek_attn", "B", 2},
    {"deepseek_attn", "Hkv", 2},
    {"deepseek_attn", "S", 300},
    {"deepseek_attn_backward", "B", 2},
    {"deepseek_attn_backward", "Hkv", 2},
    {"deepseek_attn_backward", "S", 150},
};

/// Multiply-adds of a call. The definition of a gradient takes some microseconds for each pair.
double work_of(const operation& op) {
  return op.name.ends_with("_backward") ? 2e7 : 2e8;
}

class latent_tiles : public testing::TestWithParam<support::tested_row> {};

TEST_P(latent_tiles, are_right_next_to_each_other) {
  const support::tested_row& row = GetParam();
  int ran = 0;
  for (const operation& op : row.kind->operations) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      support::call_wishes wishes{.density = 0.2, .work = work_of(op)};
      for (std::size_t dim = 0; dim < op.form->dims.size(); ++dim) {
        for (const axis_extent& axis : extents) {
          if (axis.op == op.name && axis.symbol == op.form->dims[dim].symbol) {
            wishes.extents[dim] = axis.extent;
          }
        }
      }
      support::random_source random(seed);
      const auto data = support::call_for(row, op, random, wishes);
      if (data == nullptr) continue;  // the row does not run the operation
      const support::call_expectation expectation(data->call());
      std::vector<std::vector<std::byte>> first;
      for (int run = 0; run < 2; ++run) {
        EXPECT_EQ(support::complaints_of_call(*row.kind, *data, expectation, {.row = row.row->name},
                                              first),
                  "")
            << data->text();
      }
      ++ran;
    }
  }
  EXPECT_GT(ran, 0);
}

/// Index queries whose rows the copy unit addresses, that have whole pieces of 16 bytes, or
/// neither. Few columns in all: the definition meets each pair in each of them.
constexpr std::string_view index_queries[] = {"[1,300,66,16]f8_e4m3", "[1,300,3,128]f8_e4m3",
                                              "[1,300,3,128]f8_e5m2", "[1,300,3,128]bf16",
                                              "[1,300,3,40]f8_e5m2",  "[1,300,3,40]f8_e4m3"};

TEST_P(latent_tiles, select_what_indexers_of_any_type_score_highest) {
  const support::tested_row& row = GetParam();
  if (row.row->name.find("selected.forward") == std::string_view::npos) GTEST_SKIP();
  const operation& op = *std::ranges::find(row.kind->operations, "deepseek_attn", &operation::name);
  for (const std::string_view queries : index_queries) {
    const std::string fields =
        "ckv=[1,300,64]bf16 w_kc=[64,1,128] w_vc=[64,1,128] k_pe=[1,300,64] q=[1,300,2,192] "
        "causal=true index_topk=37 q_index=" +
        std::string(queries);
    owned_problem problem = support::whole_problem(op, fields).value();
    for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
      const std::string_view name = op.form->tensors[i].name;
      if (name == "bias_post" || name == "mask") problem.tensors[i] = {};
    }
    ASSERT_TRUE(support::runs(*row.kind, *row.row, support::problem_here(problem.view())));
    support::random_source random(7);
    support::call_data data(problem, random, {.aligned = true});
    ASSERT_TRUE(data.refusal()) << data.refusal().message();
    const support::call_expectation expectation(data.call());
    std::vector<std::vector<std::byte>> first;
    EXPECT_EQ(
        support::complaints_of_call(*row.kind, data, expectation, {.row = row.row->name}, first),
        "")
        << data.text();
  }
}

std::vector<support::tested_row> latent_rows_of_build() {
  std::vector<support::tested_row> all = support::tested_rows();
  std::erase_if(all, [](const auto& entry) { return entry.kind->name != "latent_attention"; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(rows, latent_tiles, testing::ValuesIn(latent_rows_of_build()),
                         [](const auto& tested) {
                           return support::test_name(tested.param.row->name);
                         });

}  // namespace
}  // namespace tessera::device_test
