// The commands and GPUs: devices that are not there, and what a build or machine without them says.
#include <string>

#include <gtest/gtest.h>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

const std::string problem = " --problem 'q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true'";

std::string device(const std::string& name) {
  return " --device '" TESSERA_DEVICES_DIR "/" + name + ".json'";
}

/// Rows of GPUs in this build.
std::size_t gpu_rows() {
  const outcome listed = invoke("list --json --op flash_attention");
  const json::value document = json_of(listed);
  std::size_t count = 0;
  for (const json::value& row : document.at("rows").as_array()) {
    count += row.at("isa").as_string().starts_with("cuda") ? 1 : 0;
  }
  return count;
}

TEST(gpu, explain_describes_devices_that_are_not_there) {
  for (const char* name : {"h200", "a100"}) {
    const outcome ended = invoke("explain flash_attention --json" + problem + device(name));
    const json::value what = json_of(ended);
    EXPECT_EQ(what.at("device").at("kind").as_string(), "cuda");
    EXPECT_TRUE(what.at("device_class").as_string().starts_with("cuda_cc")) << ended.out;
    if (gpu_rows() == 0) {
      EXPECT_EQ(ended.status, 1);
      EXPECT_TRUE(what.at("row").is_null());
      EXPECT_NE(what.at("refusal").as_string().find("the row is for the CPU"), json::string::npos);
    } else {
      EXPECT_EQ(ended.status, 0) << ended.err;
      EXPECT_NE(what.at("row").as_string().find(".bf16.d128."), json::string::npos);
      EXPECT_NE(what.at("reason_text").as_string().find("multiprocessors"), json::string::npos);
    }
    for (const json::value& row : what.at("eligible").as_array()) {
      EXPECT_NE(row.at("row").as_string().find(".cuda_sm"), json::string::npos);
    }
  }
}

// The fastest gradients add up in no order: rows that repeat their bits take longer, and the
// explanation says how much.
TEST(gpu, explain_says_what_a_promise_costs) {
  const std::string gradients =
      "explain flash_attention_backward --json" + problem + device("h200") + " --promise ";
  const json::value what = json_of(invoke(gradients + "deterministic"));
  if (what.at("row").is_null()) GTEST_SKIP() << "no rows of GPUs in this build";
  const std::string row(what.at("row").as_string()), reason(what.at("reason_text").as_string());
  EXPECT_NE(row.find(".turns."), std::string::npos) << row;
  const std::size_t says = reason.find("; deterministic results cost ");
  ASSERT_NE(says, std::string::npos) << reason;
  EXPECT_NE(reason.find(" times the time: ", says), std::string::npos) << reason;
  EXPECT_NE(reason.find(" by attention_backward.cuda_", says), std::string::npos) << reason;
  EXPECT_EQ(invoke(gradients + "fast").status, 2);
}

TEST(gpu, explain_names_the_device_for_people) {
  const outcome ended = invoke("explain flash_attention" + problem + device("a100"));
  EXPECT_NE(ended.out.find("NVIDIA A100-SXM4-80GB (cuda:1, compute capability 8.0), 108 "
                           "multiprocessors"),
            std::string::npos)
      << ended.out;
}

TEST(gpu, a_device_that_a_build_or_machine_lacks_is_the_answer_no) {
  const std::string file = " --input '" TESSERA_GOLDEN_DIR "/flash_attention.bf16_gqa.safetensors'";
  for (const std::string& command :
       {"run flash_attention --backend cuda:63" + file,
        std::string("check --backend cuda:63 '" TESSERA_GOLDEN_DIR
                    "/flash_attention.bf16_gqa.safetensors'"),
        "explain flash_attention --backend cuda:63" + problem,
        std::string("model --backend cuda:63 '" TESSERA_MODELS_DIR "/qwen3-0.6b.json'")}) {
    const outcome ended = invoke(command);
    EXPECT_EQ(ended.status, 1) << command << "\n" << ended.err;
    EXPECT_NE(ended.err.find("--backend: cuda:63"), std::string::npos) << ended.err;
  }
}

TEST(gpu, backends_that_are_none_are_refused) {
  for (const char* wrong : {"gpu", "cuda:", "cuda:x", "cpu:1"}) {
    const outcome ended =
        invoke("explain flash_attention --backend " + std::string(wrong) + problem);
    EXPECT_EQ(ended.status, 2) << wrong;
    EXPECT_NE(ended.err.find("--backend"), std::string::npos) << ended.err;
  }
  expect_refusal(invoke("explain flash_attention --backend cpu" + problem + device("h200")),
                 "--backend");
}

TEST(gpu, doctor_tells_what_there_is) {
  const outcome ended = invoke("doctor --json --quiet");
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value found = json_of(ended);
  EXPECT_EQ(found.at("device").at("kind").as_string(), "cpu");
  const json::value& cuda = found.at("cuda");
  EXPECT_EQ(cuda.at("runtime").as_int64() > 0, gpu_rows() > 0);
  for (const json::value& gpu : cuda.at("gpus").as_array()) {
    EXPECT_GT(gpu.at("device").at("multiprocessors").as_int64(), 0);
    EXPECT_TRUE(gpu.at("ceilings").is_object()) << gpu.at("refusal");
  }
}

}  // namespace
