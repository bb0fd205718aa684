// The commands on the second family: the same flags, the same judge, other tensors.
#include <string>

#include <gtest/gtest.h>

#include <tessera/interop/safetensors.hpp>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

TEST(pooling, check_judges_both_directions) {
  const outcome ended = invoke("check --json " + golden("mean_pooling.mask") + " " +
                               golden("mean_pooling_chunks.packed"));
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  const json::value document = json_of(ended);
  EXPECT_TRUE(document.at("passed").as_bool());
  for (const json::value& file : document.at("files").as_array()) {
    const json::array& rows = file.at("rows").as_array();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(std::string(rows.at(1).at("op").as_string()),
              std::string(rows.at(0).at("op").as_string()) + "_backward");
    for (const json::value& row : rows) {
      int computed = 0;
      for (const json::value& tensor : row.at("tensors").as_array()) {
        computed += tensor.at("computed").as_bool() ? 1 : 0;
      }
      EXPECT_EQ(computed, 1);
    }
  }
}

TEST(pooling, run_writes_the_output_of_its_direction) {
  const scratch_folder folder;
  const std::string output = folder / "output.safetensors";
  const std::string input = " --input " + golden("mean_pooling_chunks.dense");
  ASSERT_EQ(invoke("run mean_pooling_chunks" + input + " --output " + output).status, 0);
  auto written = tessera::safetensors_file::open(output);
  ASSERT_TRUE(written) << written.message();
  ASSERT_NE(written->tensor("out.out"), nullptr);
  EXPECT_EQ(written->tensor("out.out")->extent[1], 3);
  ASSERT_EQ(invoke("run mean_pooling_chunks --option chunk_size=7" + input + " --output " + output)
                .status,
            0);
  written = tessera::safetensors_file::open(output);
  ASSERT_TRUE(written) << written.message();
  EXPECT_EQ(json::parse(written->metadata().find("options")->second).at("chunk_size").as_int64(),
            7);
  ASSERT_EQ(invoke("run mean_pooling_chunks_backward" + input + " --output " + output).status, 0);
  written = tessera::safetensors_file::open(output);
  ASSERT_TRUE(written) << written.message();
  EXPECT_NE(written->tensor("out.d_x"), nullptr);
  EXPECT_EQ(written->tensor("out.out"), nullptr);
}

TEST(pooling, run_refuses_what_the_operation_does_not_take) {
  const std::string input = " --input " + golden("mean_pooling.dense");
  expect_refusal(invoke("run mean_pooling --option causal=true" + input), "\"causal\"");
  expect_refusal(invoke("run mean_pooling --option chunk_size=4" + input), "chunk_size");
  expect_refusal(invoke("run mean_pooling --input " + golden("flash_attention.full")), "in.k");
  expect_refusal(invoke("run mean_pooling_chunks" + input), "rank");
}

TEST(pooling, list_and_explain_know_its_rows) {
  const outcome listed = invoke("list --json --op mean_pooling_backward");
  ASSERT_EQ(listed.status, 0) << listed.err;
  const json::value rows = json_of(listed);
  for (const json::value& row : rows.at("rows").as_array()) {
    EXPECT_EQ(row.at("family").as_string(), "mean_pooling");
    EXPECT_TRUE(row.at("config").as_object().contains("stores"));
  }
  const outcome told = invoke("explain mean_pooling --json --problem 'x=[8,512,384]bf16'");
  ASSERT_EQ(told.status, 0) << told.err;
  const json::value what = json_of(told);
  EXPECT_EQ(what.at("eligible").as_array().size() + what.at("rejected").as_array().size(),
            rows.at("rows").as_array().size());
  EXPECT_TRUE(std::string(what.at("row").as_string()).starts_with("mean_pooling."));
  expect_refusal(invoke("explain mean_pooling --problem 'q=[1,2,3]f32'"), "--problem");
}

}  // namespace
