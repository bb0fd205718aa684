// `replay`: every request of a trace is served, every step is right, and what cannot be served is
// refused.
#include <algorithm>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

// Prompts in chunks, windows of 128 that end in the middle of pages, a common prefix, a pool that
// runs out.
constexpr std::string_view small_trace =
    "pool page_size=16 pages=20\n"
    "batch tokens=64 sequences=4\n"
    "generate requests=6 seed=5\n"
    "arrivals poisson rate=0.5\n"
    "prompt uniform min=90 max=150\n"
    "output uniform min=24 max=40\n"
    "prefix system length=40 share=0.6\n"
    "request arrival=1 prompt=1 output=1\n";

std::string replay_of(const std::string& model_file, const std::string& trace) {
  return "replay --quiet --model " + model_file + " --trace '" + trace + "' ";
}

/// The document of a run in which every step is checked.
json::value replayed(const std::string& name, const std::string& flags = "") {
  const scratch_folder folder;
  write_file(folder / "small.txt", small_trace);
  const outcome ended =
      invoke(replay_of(model(name), folder / "small.txt") + "--json --check-every 1 " + flags);
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  return json_of(ended);
}

TEST(replay, windows_and_sinks_are_right_at_every_step) {
  const json::value document = replayed("gpt-oss-20b");
  EXPECT_EQ(document.at("tessera").as_string(), "replay");
  EXPECT_TRUE(document.at("passed").as_bool());
  const json::value& totals = document.at("totals");
  EXPECT_EQ(totals.at("requests_finished").as_int64(), 7);
  EXPECT_GT(totals.at("pages_shared").as_int64(), 0);
  EXPECT_GT(totals.at("evictions").as_int64(), 0);
  EXPECT_GT(totals.at("tokens_computed_again").as_int64(), 0);
  const auto steps = document.at("steps").at("all").at("steps").to_number<std::size_t>();
  EXPECT_EQ(document.at("checked_steps").to_number<std::size_t>(), steps);
  double most_pages = 0;
  for (const json::key_value_pair& column : document.at("columns").as_object()) {
    EXPECT_EQ(column.value().as_array().size(), steps) << column.key();
  }
  for (const json::value& used : document.at("columns").at("pages_used").as_array()) {
    most_pages = std::max(most_pages, used.to_number<double>());
  }
  EXPECT_TRUE(std::ranges::any_of(document.at("columns").at("joined").as_array(),
                                  [](const json::value& n) { return n.as_int64() > 1; }))
      << "no step names sequences that share pages";
  EXPECT_EQ(most_pages, totals.at("pages_peak").to_number<double>());
  EXPECT_LE(most_pages, 20);
  const json::array& layers = document.at("layers").as_array();
  ASSERT_EQ(layers.size(), 2u);
  for (const json::value& layer : layers) {
    EXPECT_EQ(layer.at("operation").as_string(), "chunked_prefill_paged_decode");
    EXPECT_TRUE(layer.at("passed").as_bool()) << layer;
    EXPECT_GE(layer.at("checked_sequences").to_number<std::size_t>(), steps);
    EXPECT_GT(layer.at("error").to_number<double>(), 0);
    std::size_t served = 0;
    for (const json::value& row : layer.at("rows").as_array()) {
      EXPECT_FALSE(row.at("row").as_string().empty());
      served += row.at("steps").to_number<std::size_t>();
    }
    EXPECT_EQ(served, steps);
  }
}

TEST(replay, soft_caps_and_types_leave_the_schedule_as_it_is) {
  const json::value element = replayed("gemma-2-2b");
  const json::value other = replayed("qwen3-0.6b", "--dtype f16 --threads 1");
  EXPECT_EQ(element.at("totals"), other.at("totals"));
  EXPECT_EQ(element.at("columns").at("tokens"), other.at("columns").at("tokens"));
  EXPECT_EQ(other.at("model").at("dtype").as_string(), "f16");
  EXPECT_EQ(other.at("workers").as_int64(), 1);
}

TEST(replay, tokens_of_8_bits_have_scales_of_their_own) {
  for (const char* type : {"i8", "f8_e4m3", "f8_e5m2"}) {
    const json::value document =
        replayed("qwen3-0.6b", std::string("--token-scales --pool ") + type);
    const json::value& layer = document.at("layers").at(0);
    EXPECT_EQ(layer.at("operation").as_string(), "chunked_prefill_paged_decode");
    EXPECT_TRUE(layer.at("passed").as_bool()) << layer;
    // 20 pages of 16 tokens, keys and values of 8 heads: 128 codes and a scale each.
    EXPECT_EQ(layer.at("pool_bytes").to_number<int>(), 20 * 16 * 2 * 8 * (128 + 4));
    EXPECT_EQ(document.at("checked_steps").as_int64(),
              document.at("steps").at("all").at("steps").as_int64());
  }
}

TEST(replay, latents_are_served_and_what_has_no_pages_is_named) {
  const json::value document = replayed("kimi-linear-48b-a3b", "--max-steps 8");
  ASSERT_EQ(document.at("layers").as_array().size(), 1u);
  EXPECT_EQ(document.at("layers").at(0).at("operation").as_string(),
            "multi_latent_ragged_page_attention");
  ASSERT_EQ(document.at("left_out").as_array().size(), 1u);
  const std::string left(document.at("left_out").at(0).as_string());
  EXPECT_NE(left.find("20 layers of kind kernel_delta_attention are left out"), std::string::npos)
      << left;
  EXPECT_EQ(document.at("steps").at("all").at("steps").as_int64(), 8);
  EXPECT_LT(document.at("totals").at("requests_finished").as_int64(), 7);
}

TEST(replay, people_read_what_it_took) {
  const scratch_folder folder;
  write_file(folder / "small.txt", small_trace);
  const outcome ended = invoke(replay_of(model("qwen3-0.6b"), folder / "small.txt"));
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* words :
       {"7 of 7 requests finished", "ms p99", "decode only", "28 x full", "GB/s",
        "Evictions: ", "all right", "Pages: 20 of 16 tokens, 35.0 MiB in all layers; in use "}) {
    EXPECT_NE(ended.out.find(words), std::string::npos) << "lacks '" << words << "':\n"
                                                        << ended.out;
  }
  const outcome unchecked =
      invoke(replay_of(model("qwen3-0.6b"), folder / "small.txt") + "--check-every 0");
  EXPECT_NE(unchecked.out.find("no step was checked"), std::string::npos) << unchecked.out;
}

TEST(replay, what_cannot_be_served_is_refused) {
  const scratch_folder folder;
  const std::string path = folder / "trace.txt";
  const std::string qwen = model("qwen3-0.6b");
  write_file(path, small_trace);
  expect_refusal(invoke(replay_of(model("all-minilm-l6-v2"), path)), "encoder");
  expect_refusal(invoke(replay_of(model("falcon-mamba-7b"), path)), "0 of 1 kinds of layers");
  expect_refusal(invoke("replay --model " + qwen), "--trace is required");
  expect_refusal(invoke(replay_of(qwen, path) + "--token-scales"), "--pool");
  expect_refusal(invoke(replay_of(qwen, folder / "absent.txt")), "absent.txt: cannot be opened");
  EXPECT_EQ(invoke(replay_of(qwen, path) + "--row no.such.row").status, 1);
  write_file(path, "pool page_size=16 pages=many\n");
  expect_refusal(invoke(replay_of(qwen, path)),
                 "trace.txt:1: pool: pages is \"many\", must be a whole number");
  write_file(path,
             "pool page_size=64 pages=16777216\nbatch tokens=8 sequences=1\n"
             "request arrival=0 prompt=60 output=6\n");
  expect_refusal(invoke(replay_of(qwen, path)), "the pools and tensors need 2.2e+12 bytes");
  write_file(path,
             "pool page_size=16 pages=4\nbatch tokens=8 sequences=1\n"
             "request arrival=0 prompt=60 output=6\n");
  expect_refusal(invoke(replay_of(qwen, path)),
                 "60 prompt and 6 output tokens need 5 pages of 16, the pool has 4");
}

}  // namespace
