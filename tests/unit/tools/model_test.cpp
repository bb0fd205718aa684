// `model`: published descriptions are read as their authors mean them, hostile ones are refused.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

json::value document_of(const std::string& arguments) {
  const outcome ended = invoke("model --json --quiet " + arguments);
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  return json_of(ended);
}

/// The document of a quick run: what mixes tokens.
json::value quick(const std::string& arguments) {
  return document_of("--parts mixers " + arguments);
}

/// Every description of the folder.
std::string descriptions(std::size_t& count) {
  std::string files;
  for (const fs::directory_entry& entry : fs::directory_iterator(TESSERA_MODELS_DIR)) {
    if (entry.path().extension() != ".json") continue;
    files += " '" + entry.path().string() + "'";
    ++count;
  }
  return files;
}

TEST(model, every_description_runs_and_is_right) {
  std::size_t count = 0;
  const std::string files = descriptions(count);
  ASSERT_GE(count, 5u);
  const json::value document = quick("--tokens 48 --phase prefill,decode,append" + files);
  EXPECT_TRUE(document.at("passed").as_bool());
  EXPECT_GE(document.at("layers").as_array().size(), 3 * (count - 1) + 1);
  for (const json::value& layer : document.at("layers").as_array()) {
    EXPECT_GT(layer.at("percent_of_ceiling").to_number<double>(), 0.0);
    EXPECT_FALSE(layer.at("row").as_string().empty());
    EXPECT_TRUE(layer.at("passed").as_bool()) << layer;
  }
}

TEST(model, gemma_2_alternates_windows_and_caps_logits) {
  const json::value document = quick("--tokens 32 --phase decode " + model("gemma-2-2b"));
  const json::array& layers = document.at("layers").as_array();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].at("layers").as_int64(), 13);
  EXPECT_EQ(layers[1].at("layers").as_int64(), 13);
  const std::string full(layers[0].at("problem").as_string());
  const std::string window(layers[1].at("problem").as_string());
  EXPECT_NE(full.find("q=[1,1,8,256]f32 k=[1,32,4,256]"), std::string::npos) << full;
  EXPECT_NE(full.find("logits_soft_cap=50"), std::string::npos) << full;
  EXPECT_EQ(full.find("window_left"), std::string::npos) << full;
  EXPECT_NE(window.find("window_left=4095"), std::string::npos) << window;
  EXPECT_EQ(full.find("softmax_scale"), std::string::npos) << "256 is the head dim: " << full;
}

TEST(model, gpt_oss_has_sinks_and_windows_of_128) {
  const json::value document = quick("--tokens 32 --phase prefill " + model("gpt-oss-20b"));
  const json::array& layers = document.at("layers").as_array();
  ASSERT_EQ(layers.size(), 2u);
  for (const json::value& layer : layers) {
    const std::string text(layer.at("problem").as_string());
    EXPECT_EQ(layer.at("layers").as_int64(), 12);
    EXPECT_NE(text.find("q=[1,32,64,64]bf16 k=[1,32,8,64]"), std::string::npos) << text;
    EXPECT_NE(text.find("sinks=[64,1]"), std::string::npos) << text;
  }
  EXPECT_NE(std::string(layers[1].at("problem").as_string()).find("window_left=127"),
            std::string::npos);
}

TEST(model, an_encoder_is_bidirectional_and_never_decodes) {
  const json::value document = quick("--tokens 32 " + model("all-minilm-l6-v2"));
  const json::array& layers = document.at("layers").as_array();
  ASSERT_EQ(layers.size(), 1u);
  const std::string text(layers[0].at("problem").as_string());
  EXPECT_EQ(text, "flash_attention q=[1,32,12,32]f32 k=[1,32,12,32]");
  EXPECT_EQ(layers[0].at("layers").as_int64(), 6);
}

/// The problems of a document, one line each.
std::vector<std::string> problems_in(const json::value& document) {
  std::vector<std::string> problems;
  for (const json::value& layer : document.at("layers").as_array()) {
    problems.emplace_back(layer.at("problem").as_string());
  }
  return problems;
}

TEST(model, a_hybrid_mixes_attention_and_a_recurrence) {
  const json::value document =
      quick("--tokens 16 --phase prefill,decode " + model("qwen3-next-80b-a3b"));
  const json::array& layers = document.at("layers").as_array();
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].at("layers").as_int64(), 12);
  EXPECT_EQ(layers[2].at("layers").as_int64(), 36);
  const std::vector<std::string> problems = problems_in(document);
  EXPECT_NE(problems[0].find("flash_attention q=[1,16,16,256]bf16 k=[1,16,2,256]"),
            std::string::npos)
      << problems[0];
  EXPECT_NE(problems[2].find("gated_delta_rule q=[1,16,16,128]bf16 v=[1,16,32,128]"),
            std::string::npos)
      << problems[2];
  EXPECT_EQ(problems[2].find("initial_state"), std::string::npos) << "a prompt starts from nothing";
  EXPECT_NE(problems[3].find("initial_state=[1,32,128,128]f32"), std::string::npos) << problems[3];
}

TEST(model, latents_are_expanded_for_prompts_and_multiplied_into_for_what_follows) {
  const json::value document = quick("--tokens 16 --phase prefill,decode " + model("deepseek-v3") +
                                     " " + model("kimi-linear-48b-a3b"));
  const std::vector<std::string> problems = problems_in(document);
  ASSERT_EQ(problems.size(), 6u);
  EXPECT_TRUE(problems[0].starts_with("flash_mla ckv=[1,16,512]bf16 w_kc=[512,128,128]"))
      << problems[0];
  EXPECT_TRUE(problems[1].starts_with("flash_mla_decode q=[1,1,128,576]bf16 kv_cache=[1,64,1,576]"))
      << problems[1];
  // 1.8738 / sqrt(192): positions are scaled by 40.
  EXPECT_NE(problems[1].find("softmax_scale=0.1352"), std::string::npos) << problems[1];
  EXPECT_TRUE(problems[2].starts_with("flash_mla ")) << problems[2];
  EXPECT_TRUE(problems[4].starts_with("kernel_delta_attention ")) << problems[4];
}

TEST(model, keys_are_selected_in_prompts) {
  const json::value document =
      quick("--tokens 16 --phase decode,prefill " + model("deepseek-v3.2-exp"));
  const std::vector<std::string> problems = problems_in(document);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_TRUE(problems[0].starts_with("flash_mla_decode ")) << problems[0];
  EXPECT_TRUE(problems[1].starts_with("deepseek_attn ckv=[1,16,512]bf16 ")) << problems[1];
  EXPECT_NE(problems[1].find("q_index=[1,16,64,128]bf16"), std::string::npos) << problems[1];
}

TEST(model, training_asks_forward_and_gradients_of_every_layer) {
  const json::value document = quick("--tokens 16 --phase training " + model("rwkv7-1.5b-world") +
                                     " " + model("all-minilm-l6-v2"));
  const std::vector<std::string> problems = problems_in(document);
  ASSERT_EQ(problems.size(), 4u);
  const std::vector<std::string> operations{"rwkv7 ", "rwkv7_backward ", "flash_attention ",
                                            "flash_attention_backward "};
  for (std::size_t n = 0; n < problems.size(); ++n) {
    EXPECT_TRUE(problems[n].starts_with(operations[n])) << problems[n];
  }
}

/// Problems of a document by their part.
std::map<std::string, std::string> problems_by_part(const json::value& document) {
  std::map<std::string, std::string> problems;
  for (const json::value& layer : document.at("layers").as_array()) {
    problems.emplace(layer.at("part").as_string(), layer.at("problem").as_string());
  }
  return problems;
}

TEST(model, products_of_every_description_have_rows) {
  std::size_t count = 0;
  const std::string files = descriptions(count);
  const json::value document =
      document_of("--dry-run --parts products --phase prefill,decode,append,training" + files);
  std::map<std::string, int> products, heads;
  for (const json::value& layer : document.at("layers").as_array()) {
    const std::string name(layer.at("model").as_string());
    const std::string problem(layer.at("problem").as_string());
    const bool product = problem.starts_with("matmul") || problem.starts_with("grouped_matmul") ||
                         problem.starts_with("quantized_grouped_matmul");
    EXPECT_TRUE(product || problem.starts_with("fused_linear_cross_entropy")) << problem;
    EXPECT_FALSE(layer.at("row").as_string().empty()) << problem;
    EXPECT_FALSE(layer.as_object().contains("milliseconds")) << "a dry run measures nothing";
    ++products[name];
    heads[name] += layer.at("layer_kind").as_string() == "head" ? 1 : 0;
  }
  EXPECT_EQ(products.size(), count);
  for (const auto& [name, number] : products) {
    // Into the mixer and out of it, in each phase, gradients too.
    EXPECT_GE(number, name == "all-minilm-l6-v2" ? 2 * 3 : 2 * 5) << name;
    EXPECT_EQ(heads[name], name == "all-minilm-l6-v2" ? 0 : 5) << name;
  }
}

TEST(model, products_have_the_sizes_of_the_model) {
  auto problems = problems_by_part(
      document_of("--dry-run --tokens 64 --batch 2 --phase prefill " + model("qwen3-30b-a3b")));
  EXPECT_EQ(problems["qkv"], "matmul lhs=[128,2048]bf16 rhs=[5120,2048]bf16 transpose_rhs=true");
  EXPECT_EQ(problems["out"], "matmul lhs=[128,4096]bf16 rhs=[2048,4096]bf16 transpose_rhs=true");
  EXPECT_EQ(problems["router"], "matmul lhs=[128,2048]bf16 rhs=[128,2048]bf16 transpose_rhs=true");
  EXPECT_EQ(problems["experts gate, up"],
            "grouped_matmul lhs=[1024,2048]bf16 rhs=[128,1536,2048]bf16 group_sizes=[128]i32 "
            "transpose_rhs=true");
  EXPECT_EQ(problems["experts down"],
            "grouped_matmul lhs=[1024,768]bf16 rhs=[128,2048,768]bf16 group_sizes=[128]i32 "
            "transpose_rhs=true");
  EXPECT_EQ(problems["logits"], "matmul lhs=[2,2048]bf16 rhs=[151936,2048]bf16 transpose_rhs=true")
      << "of the last token of each sequence";
  problems =
      problems_by_part(document_of("--dry-run --tokens 64 --phase decode " + model("deepseek-v3")));
  EXPECT_EQ(problems["q to latent"], "matmul lhs=[128,1,128]bf16 rhs=[128,128,512]bf16");
  EXPECT_EQ(problems["shared down"],
            "matmul lhs=[1,2048]bf16 rhs=[7168,2048]bf16 transpose_rhs=true");
  problems = problems_by_part(
      document_of("--dry-run --tokens 64 --phase prefill " + model("all-minilm-l6-v2")));
  EXPECT_EQ(problems["up"],
            "matmul lhs=[64,384]f32 rhs=[1536,384]f32 rhs_bias=[1536]f32 transpose_rhs=true");
  EXPECT_FALSE(problems.contains("logits")) << "an encoder makes no tokens";
}

/// A model small enough to run as a whole: one layer in two has experts.
constexpr std::string_view small_model = R"({"model_type": "qwen3_moe", "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 8,
    "num_experts_per_tok": 2, "decoder_sparse_step": 2, "vocab_size": 200,
    "torch_dtype": "bfloat16"})";

TEST(model, products_have_the_weights_that_are_published) {
  auto problems = problems_by_part(
      document_of("--dry-run --tokens 64 --phase prefill " + model("gpt-oss-20b")));
  EXPECT_EQ(problems["experts gate, up"],
            "quantized_grouped_matmul x=[256,2880]bf16 out=[256,5760]bf16 w_q=[32,5760,360]u32 "
            "scales=[32,5760,90]u8 group_sizes=[32]i32 mode=mxfp4");
  EXPECT_EQ(problems["experts down"],
            "quantized_grouped_matmul x=[256,2880]bf16 out=[256,2880]bf16 w_q=[32,2880,360]u32 "
            "scales=[32,2880,90]u8 group_sizes=[32]i32 mode=mxfp4");
  EXPECT_EQ(problems["router"],
            "matmul lhs=[64,2880]bf16 rhs=[32,2880]bf16 rhs_bias=[32]bf16 transpose_rhs=true");
  EXPECT_TRUE(problems["qkv"].starts_with("matmul ")) << problems["qkv"];

  const scratch_folder folder;
  const std::string path = folder / "packed.json";
  const auto published = [&](std::string_view packing) {
    std::string text(small_model);
    text.insert(1, "\"quantization_config\": " + std::string(packing) + ",");
    write_file(path, text);
    return path;
  };
  const std::string gptq = published(R"({"quant_method": "gptq", "bits": 8, "group_size": 32})");
  const std::vector<std::string> asked =
      problems_in(document_of("--dry-run --tokens 8 --phase training --parts products " + gptq));
  const auto is_asked = [&](std::string_view problem) {
    return std::ranges::find(asked, problem) != asked.end();
  };
  EXPECT_TRUE(
      is_asked("quantized_matmul x=[8,64]bf16 out=[8,128]bf16 w_q=[128,16]u32 "
               "scales=[128,2]bf16 zeros=[128,2]bf16 bits=8 group_size=32"));
  EXPECT_TRUE(
      is_asked("quantized_matmul_backward x=[8,64]bf16 d_out=[8,128]bf16 "
               "w_q=[128,16]u32 scales=[128,2]bf16 zeros=[128,2]bf16 bits=8 "
               "group_size=32"));
  EXPECT_TRUE(
      is_asked("quantized_grouped_matmul_backward x=[16,32]bf16 d_out=[16,64]bf16 "
               "w_q=[8,64,8]u32 scales=[8,64,1]bf16 zeros=[8,64,1]bf16 "
               "group_sizes=[8]i32 bits=8 group_size=32"));
  EXPECT_TRUE(is_asked("matmul lhs=[8,64]bf16 rhs=[8,64]bf16 transpose_rhs=true")) << "the router";
  EXPECT_TRUE(
      document_of("--tokens 24 --phase decode --parts products " + gptq).at("passed").as_bool());

  problems = problems_by_part(document_of("--dry-run --tokens 8 --phase prefill " +
                                          published(R"({"quant_method": "fp8"})")));
  EXPECT_TRUE(problems["qkv"].starts_with("matmul ")) << problems["qkv"];
  const outcome refused = invoke("model --dry-run " + published(R"({"quant_method": "awq",
      "bits": 4, "group_size": 48})"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("group_size is 48, must be a power of two from 8 to 1024"),
            std::string::npos)
      << refused.err;
}

TEST(model, experts_have_the_layers_that_the_description_says) {
  const json::value document =
      document_of("--dry-run --tokens 8 --phase decode " + model("deepseek-v3"));
  std::map<std::string, std::int64_t> layers;
  for (const json::value& layer : document.at("layers").as_array()) {
    layers[std::string(layer.at("layer_kind").as_string())] = layer.at("layers").as_int64();
  }
  EXPECT_EQ(layers["latent"], 61);
  EXPECT_EQ(layers["gated 18432"], 3);
  EXPECT_EQ(layers["8 of 256 experts of 2048"], 58);
  EXPECT_EQ(layers["head"], 1);
}

TEST(model, whole_layers_are_the_sums_of_what_they_ask) {
  const scratch_folder folder;
  const std::string path = folder / "small.json";
  write_file(path, small_model);
  const json::value document =
      document_of("--tokens 24 --phase prefill,decode,append,training " + path);
  EXPECT_TRUE(document.at("passed").as_bool());
  std::map<std::string, double> asked;  // of all layers, by phase
  for (const json::value& layer : document.at("layers").as_array()) {
    EXPECT_TRUE(layer.at("passed").as_bool()) << layer;
    asked[std::string(layer.at("phase").as_string())] +=
        layer.at("milliseconds").at("median").to_number<double>() *
        static_cast<double>(layer.at("times").as_int64() * layer.at("layers").as_int64());
  }
  ASSERT_EQ(asked.size(), 4u);
  const json::array& wholes = document.at("whole_layers").as_array();
  // Two kinds of layers, the head and the model.
  ASSERT_EQ(wholes.size(), 4u * 4);
  for (const json::value& whole : wholes) {
    const double mixer = whole.at("mixer_milliseconds").to_number<double>();
    const double products = whole.at("products_milliseconds").to_number<double>();
    EXPECT_DOUBLE_EQ(whole.at("sum_milliseconds").to_number<double>(), mixer + products);
    EXPECT_GT(products, 0.0) << whole;
    if (whole.at("layer").as_string() != "model") continue;
    const double all = asked[std::string(whole.at("phase").as_string())];
    EXPECT_NEAR(mixer + products, all, all * std::numeric_limits<float>::epsilon()) << whole;
  }
}

TEST(model, batch_threads_and_dtype_are_obeyed) {
  const json::value document =
      quick("--tokens 16 --batch 3 --threads 1 --dtype f16 --phase prefill " + model("qwen3-0.6b"));
  EXPECT_EQ(document.at("threads").as_int64(), 1);
  EXPECT_EQ(document.at("layers").as_array().at(0).at("problem").as_string(),
            "flash_attention q=[3,16,16,128]f16 k=[3,16,8,128] causal=true");
}

TEST(model, hostile_descriptions_are_refused) {
  const scratch_folder folder;
  const std::string path = folder / "config.json";
  const auto refused = [&](std::string_view text, std::string_view fact) {
    write_file(path, text);
    expect_refusal(invoke("model --quiet " + path), fact);
  };
  refused("", "not JSON");
  refused("{\"num_hidden_layers\": 2", "not JSON");
  refused(std::string(100'000, '['), "not JSON");
  refused("[]", "not a JSON object");
  refused("{} trailing", "not JSON");
  refused(R"({"hidden_size": 64, "hidden_size": 128})", "2 times");
  refused(R"({"num_hidden_layers": 2})", "num_attention_heads");
  const std::string head = R"({"num_hidden_layers": 2, "hidden_size": 64, )";
  refused(head + R"("num_attention_heads": -3})", "-3");
  refused(head + R"("num_attention_heads": 1e99})", "num_attention_heads");
  refused(head + R"("num_attention_heads": "4"})", "num_attention_heads");
  refused(head + R"("num_attention_heads": 7})", "hidden_size");
  refused(head + R"("num_attention_heads": 4, "num_key_value_heads": 3})", "does not divide");
  refused(head + R"("num_attention_heads": 4, "head_dim": 4096})", "4096");
  refused(head + R"("num_attention_heads": 4, "torch_dtype": "int4"})", "int4");
  refused(head + R"("num_attention_heads": 4, "layer_types": ["full_attention"]})", "layer_types");
  refused(head + R"("num_attention_heads": 4, "kv_lora_rank": 512})", "qk_nope_head_dim");
  refused(head + R"("num_attention_heads": 4, "attn_logit_softcapping": -1})", "softcapping");
  refused(head + R"("num_attention_heads": 4, "num_experts": 4})", "num_experts_per_tok");
  refused(head + R"("num_attention_heads": 4, "intermediate_size": 8, "num_experts": 4,
                     "num_experts_per_tok": 5})",
          "num_experts_per_tok is 5, the model has 4 experts");
  refused(head + R"("num_attention_heads": 4, "vocab_size": 0})", "vocab_size");
  expect_refusal(invoke("model " + model("qwen3-0.6b") + " --parts norms"), "norms");
  expect_refusal(invoke("model " + (folder / "absent.json")), "absent.json");
  expect_refusal(invoke("model " + model("qwen3-0.6b") + " --phase chat"), "chat");
}

}  // namespace
