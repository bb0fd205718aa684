// `list`, `explain` and `doctor`: what they answer about the build and the machine.
#include <string>

#include <gtest/gtest.h>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

const std::string problem = "--problem 'q=[1,2048,32,128]f32 k=[1,2048,8,128] causal=true'";

TEST(list, rows_carry_config_eligibility_and_cost) {
  const outcome ended = invoke("list --json --op flash_attention");
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value document = json_of(ended);
  const json::array& rows = document.at("rows").as_array();
  ASSERT_FALSE(rows.empty());
  std::string before;
  for (const json::value& row : rows) {
    const std::string name(row.at("name").as_string());
    EXPECT_LT(before, name);
    before = name;
    EXPECT_GT(row.at("config").at("block_kv").as_int64(), 0);
    EXPECT_EQ(row.at("eligible").as_bool(), row.at("reason").as_string().empty()) << name;
    EXPECT_TRUE(row.as_object().contains("compile_seconds"));
    EXPECT_TRUE(row.as_object().contains("bytes"));
  }
}

TEST(list, backend_selects_rows) {
  const outcome ended = invoke("list --json --backend cpu_generic");
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value document = json_of(ended);
  for (const json::value& row : document.at("rows").as_array()) {
    EXPECT_EQ(row.at("isa").as_string(), "cpu_generic");
    EXPECT_TRUE(row.at("eligible").as_bool());
  }
  expect_refusal(invoke("list --backend tpu"), "tpu");
  expect_refusal(invoke("list --op softmax"), "softmax");
}

TEST(list, operations_are_read_by_their_aliases) {
  const outcome ended = invoke("list --json --op mamba1"),
                named = invoke("list --json --op state_space_v1");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(json_of(ended).at("rows"), json_of(named).at("rows"));
  const outcome explained =
      invoke("explain kda --json --problem 'q=[1,9,2,8]f32 v=[1,9,2,8] beta=[1,9,2]f32'");
  ASSERT_EQ(explained.status, 0) << explained.err;
  EXPECT_EQ(json_of(explained).at("op").as_string(), "kernel_delta_attention");
  EXPECT_NE(invoke("list --op softmax").err.find("kernel_delta_attention (kda)"),
            std::string::npos);
}

TEST(list, cuda_rows_show_what_they_take_of_a_multiprocessor) {
  const outcome ended = invoke("list --json --backend cuda");
  if (ended.status == 1) {
    EXPECT_NE(ended.err.find("cuda has 0 rows in this build"), std::string::npos) << ended.err;
    return;
  }
  const json::value document = json_of(ended);
  for (const json::value& row : document.at("rows").as_array()) {
    EXPECT_TRUE(row.at("isa").as_string().starts_with("cuda_sm"));
    EXPECT_LE(row.at("registers").as_int64(), 255);
    EXPECT_TRUE(row.as_object().contains("local_bytes"));
    if (row.at("family").as_string() != "attention") continue;
    EXPECT_GT(row.at("config").at("tiling").at("warps").as_int64(), 0);
    EXPECT_GT(row.at("shared_bytes").as_int64(), 0);
  }
  const std::string text = invoke("list --backend cuda").out;
  EXPECT_NE(text.find("registers  shared KiB  local B"), std::string::npos) << text;
  EXPECT_EQ(invoke("list --backend cpu").out.find("registers"), std::string::npos);
}

TEST(list, a_capped_machine_runs_fewer_rows) {
  const outcome ended = invoke("list --json --backend cpu", "TESSERA_CPU=generic");
  const json::value document = json_of(ended);
  for (const json::value& row : document.at("rows").as_array()) {
    EXPECT_EQ(row.at("eligible").as_bool(), row.at("isa").as_string() == "cpu_generic");
  }
}

TEST(explain, names_the_row_the_tiers_and_every_other_row) {
  const outcome ended = invoke("explain flash_attention --json " + problem);
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value what = json_of(ended);
  const outcome listed = invoke("list --json --op flash_attention");
  const json::value rows = json_of(listed);
  EXPECT_TRUE(what.at("row").is_string());
  EXPECT_FALSE(what.at("tiers").as_array().empty());
  EXPECT_EQ(what.at("eligible").as_array().size() + what.at("rejected").as_array().size(),
            rows.at("rows").as_array().size());
  for (const json::value& row : what.at("rejected").as_array()) {
    EXPECT_FALSE(row.at("reason").as_string().empty());
  }
}

TEST(explain, the_operation_may_lead_the_problem) {
  EXPECT_EQ(
      invoke("explain flash_attention --problem 'flash_attention q=[1,1,4,64]f32 k=[1,9,4,64]'")
          .status,
      0);
  expect_refusal(invoke("explain attention --problem 'flash_attention q=[1,1,4,64]f32'"),
                 "--problem");
  expect_refusal(invoke("explain softmax " + problem), "softmax");
}

TEST(explain, refuses_problems_that_are_none) {
  expect_refusal(invoke("explain flash_attention --problem 'q=[1,2'"), "--problem");
  expect_refusal(invoke("explain flash_attention --problem ''"), "--problem");
  expect_refusal(invoke("explain flash_attention --problem 'q=[1,2,3,4]f32 k=[1,2,3,5]'"), "k");
  EXPECT_EQ(invoke("explain flash_attention --row no.such.row " + problem).status, 1);
}

TEST(explain, a_named_row_is_told_by_its_flag) {
  const std::string row = "attention.cpu_generic.f32.dany.every.128x64";
  const outcome ended = invoke("explain flash_attention --row " + row + " " + problem);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("override: --row names the row"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("context.row"), std::string::npos) << ended.out;
}

// Every row of a CPU repeats its bits.
TEST(explain, a_promise_that_costs_nothing_says_so) {
  const outcome ended = invoke("explain flash_attention --promise deterministic " + problem);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("; deterministic results cost nothing"), std::string::npos) << ended.out;
  const outcome named = invoke(
      "explain flash_attention --promise deterministic --row "
      "attention.cpu_generic.f32.dany.every.128x64 " +
      problem);
  EXPECT_NE(named.out.find("; deterministic results cost nothing"), std::string::npos) << named.out;
  EXPECT_EQ(invoke("explain flash_attention --promise fast " + problem).status, 2);
  const outcome free = invoke("explain flash_attention " + problem);
  EXPECT_EQ(free.out.find("results cost"), std::string::npos) << free.out;
}

TEST(explain, answers_for_a_device_that_is_not_there) {
  const scratch_folder folder;
  const std::string file = folder / "device.json";
  write_file(file, R"({"device": {"highest": "cpu_avx2", "available_threads": 64}})");
  const outcome ended = invoke("explain flash_attention --json --device " + file + " " + problem);
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value what = json_of(ended);
  EXPECT_EQ(std::string(what.at("row").as_string()).find("avx512"), std::string::npos);
  EXPECT_EQ(what.at("device").at("available_threads").as_int64(), 64);

  write_file(file, R"({"device": {"highest": "cpu_avx9"}})");
  expect_refusal(invoke("explain flash_attention --device " + file + " " + problem), "highest");
  write_file(file, R"({"cores": 1})");
  expect_refusal(invoke("explain flash_attention --device " + file + " " + problem), "cores");
  write_file(file, "[");
  expect_refusal(invoke("explain flash_attention --device " + file + " " + problem), file);
}

TEST(doctor, reports_facts_ceilings_and_what_is_wrong) {
  const outcome ended = invoke("doctor --json --quiet", "OMP_NUM_THREADS=1 TESSERA_CPU=generic");
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value document = json_of(ended);
  EXPECT_EQ(document.at("device").at("highest").as_string(), "cpu_generic");
  EXPECT_GT(document.at("ceilings").at("fma_f32_gflops_per_second").as_double(), 0.0);
  EXPECT_GT(document.at("ceilings").at("read_gigabytes_per_second").as_double(), 0.0);
  EXPECT_GT(document.at("ceilings").at("copy_gigabytes_per_second").as_double(), 0.0);
  EXPECT_EQ(document.at("environment").at("OMP_NUM_THREADS").as_string(), "1");

  const scratch_folder folder;
  const std::string file = folder / "device.json";
  write_file(file, ended.out);
  EXPECT_EQ(invoke("explain flash_attention --device " + file + " " + problem).status, 0);
}

}  // namespace
