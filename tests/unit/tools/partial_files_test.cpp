// `run` and `check` on files that leave out what follows from the rest: gradients beside the
// forward call, what it gives them, and outputs whose shapes and types no answer tells.
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/interop/safetensors.hpp>
#include <tessera/spec/float8.hpp>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
using tessera::safetensors_entry;
using tessera::safetensors_file;
namespace json = boost::json;

/// The golden file without the tensors that `left_out` is true of.
template <class LeftOut>
void write_part(const safetensors_file& file, const std::string& path, LeftOut left_out) {
  std::vector<safetensors_entry> entries(file.entries().begin(), file.entries().end());
  std::erase_if(entries, left_out);
  ASSERT_TRUE(tessera::write_safetensors(path, entries, file.metadata()));
}

// The gradient may be of another family than its operation.
TEST(check, gradients_are_judged_where_the_file_has_them) {
  for (const char* name : {"flash_attention.unnormalized", "attention.weights_gradient",
                           "scaled_dot_product_attention.mask", "deepseek_attn.index_scale",
                           "native_sparse_attention.given_indices", "mean_pooling.mask"}) {
    const outcome ended = invoke("check --json " + golden(name));
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
    const json::value document = json_of(ended);
    for (const json::value& row : document.at("files").as_array().at(0).at("rows").as_array()) {
      for (const json::value& tensor : row.at("tensors").as_array()) {
        EXPECT_TRUE(tensor.at("computed").as_bool()) << name << ": " << tensor;
      }
    }
  }
}

TEST(check, a_row_of_the_gradient_runs_the_gradient_only) {
  const std::string file = golden("flash_attention.full");
  const json::value all = json_of(invoke("check --json " + file));
  const json::array& rows = all.at("files").as_array().at(0).at("rows").as_array();
  ASSERT_EQ(rows.size(), 2u);
  for (const json::value& wanted : rows) {
    const std::string name(wanted.at("row").as_string());
    const outcome ended = invoke("check --json --row " + name + " " + file);
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
    const json::value document = json_of(ended);
    const json::array& ran = document.at("files").as_array().at(0).at("rows").as_array();
    ASSERT_EQ(ran.size(), 1u);
    EXPECT_EQ(ran[0].at("row").as_string(), name);
  }
  EXPECT_EQ(invoke("check --row no.such.row " + file).status, 1);
}

// A file has the incoming gradient as an input of the forward call's golden, too.
TEST(check, a_gradient_without_a_truth_is_passed_over) {
  const auto file = safetensors_file::open(golden("flash_attention.full"));
  ASSERT_TRUE(file) << file.message();
  const scratch_folder folder;
  const std::string forward = folder / "forward.safetensors";
  write_part(*file, forward,
             [](const safetensors_entry& entry) { return entry.name.starts_with("ref.d_"); });
  const outcome ended = invoke("check --json " + forward);
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  const json::value document = json_of(ended);
  const json::array& rows = document.at("files").as_array().at(0).at("rows").as_array();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("op").as_string(), "flash_attention");
}

// Why it cannot run, not that the forward call has no such row.
TEST(check, a_row_of_the_gradient_that_cannot_run_here_says_why) {
  const json::value listed =
      json_of(invoke("list --json --op flash_attention_backward --backend cpu_avx2"));
  const json::array& rows = listed.at("rows").as_array();
  if (rows.empty()) GTEST_SKIP() << "this build has no rows of gradients for AVX2";
  const std::string name(rows[0].at("name").as_string());
  const outcome ended =
      invoke("check --row " + name + " " + golden("flash_attention.full"), "TESSERA_CPU=generic");
  EXPECT_EQ(ended.status, 2) << ended.out << ended.err;
  EXPECT_NE(ended.err.find("the row needs cpu_avx2"), std::string::npos) << ended.err;
}

// Files that have the operation's inputs, the incoming gradient and the truth of gradients only.
TEST(run, a_gradient_computes_what_the_forward_call_did_not_leave) {
  for (const char* name :
       {"flash_attention.causal_70", "flash_attention.unnormalized", "flash_attention.packed",
        "attention.weights_gradient", "scaled_dot_product_attention.causal", "flash_mla.rope",
        "deepseek_attn.index_scale", "native_sparse_attention.internal_selection",
        "blocksparse_attention.block_mask_causal"}) {
    const auto file = safetensors_file::open(golden(name));
    ASSERT_TRUE(file) << file.message();
    const scratch_folder folder;
    const std::string bare = folder / "bare.safetensors";
    write_part(*file, bare, [](const safetensors_entry& entry) {
      return !entry.name.starts_with("in.") && !entry.name.starts_with("ref.d_");
    });
    const outcome judged = invoke("check --json " + bare);
    EXPECT_EQ(judged.status, 0) << name << ": " << judged.out << judged.err;
    const std::string gradient = file->metadata().find("op")->second + "_backward";
    EXPECT_NE(judged.out.find('"' + gradient + '"'), std::string::npos) << judged.out;
    const outcome ran = invoke("run " + gradient + " --input " + bare);
    EXPECT_EQ(ran.status, 0) << name << ": " << ran.err;
  }
}

// Sums of logits spare a gradient one of four products, the forward call that leaves them is one.
TEST(run, a_gradient_asks_the_forward_call_for_what_it_needs_alone) {
  for (const auto& [op, name, tensor, needed] :
       {std::tuple{"fused_linear_cross_entropy", "fused_linear_cross_entropy.mean",
                   "logit_sums=", false},
        {"flash_attention", "flash_attention.unnormalized", "row_max=", true}}) {
    const auto file = safetensors_file::open(golden(name));
    ASSERT_TRUE(file) << file.message();
    const scratch_folder folder;
    const std::string bare = folder / "bare.safetensors";
    write_part(*file, bare,
               [](const safetensors_entry& entry) { return !entry.name.starts_with("in."); });
    const outcome ended = invoke("run " + std::string(op) + "_backward --json --input " + bare);
    ASSERT_EQ(ended.status, 0) << name << ": " << ended.err;
    const std::string problem(json_of(ended).at("problem").as_string());
    EXPECT_EQ(problem.find(tensor) != std::string::npos, needed) << problem;
  }
}

// Answers of the forward call are those of the file's options, not of others.
TEST(run, a_gradient_with_other_options_takes_nothing_from_the_answers) {
  for (const auto& [name, option] : {std::pair{"flash_attention.full", "causal=true"},
                                     {"flash_attention.causal_70", "causal=false"},
                                     {"flash_attention.unnormalized", "normalize=true"}}) {
    const auto file = safetensors_file::open(golden(name));
    ASSERT_TRUE(file) << file.message();
    const scratch_folder folder;
    const std::string bare = folder / "bare.safetensors", output = folder / "output.safetensors";
    write_part(*file, bare,
               [](const safetensors_entry& entry) { return !entry.name.starts_with("in."); });
    std::string written[2];
    for (const bool has_answers : {false, true}) {
      const outcome ended =
          invoke("run flash_attention_backward --option " + std::string(option) + " --input " +
                 (has_answers ? golden(name) : bare) + " --output " + output);
      ASSERT_EQ(ended.status, 0) << name << ": " << ended.err;
      written[has_answers ? 1 : 0] = contents_of(output);
    }
    EXPECT_EQ(written[0], written[1]) << name << ", " << option;
    // The option matters: without it, others come out.
    ASSERT_EQ(invoke("run flash_attention_backward --input " + bare + " --output " + output).status,
              0);
    EXPECT_NE(written[0], contents_of(output)) << name << ", " << option;
  }
}

// Shapes and types of outputs follow from the inputs and options alone.
TEST(run, packed_weights_need_no_answers_in_the_file) {
  for (const char* name :
       {"quantize.affine3", "quantize.mxfp4", "quantize.nf4_bf16", "dequantize.affine5",
        "dequantize.mxfp8", "quantized_matmul.affine4_bf16", "quantized_matmul.affine6_row",
        "quantized_matmul.nvfp4_row", "grouped_matmul.bf16"}) {
    const auto file = safetensors_file::open(golden(name));
    ASSERT_TRUE(file) << file.message();
    const scratch_folder folder;
    const std::string bare = folder / "bare.safetensors", output = folder / "output.safetensors";
    write_part(*file, bare,
               [](const safetensors_entry& entry) { return !entry.name.starts_with("in."); });
    const std::string op(file->metadata().find("op")->second);
    const outcome ended = invoke("run " + op + " --input " + bare + " --output " + output);
    ASSERT_EQ(ended.status, 0) << name << ": " << ended.err;
    const auto written = safetensors_file::open(output);
    ASSERT_TRUE(written) << written.message();
    for (const safetensors_entry& entry : written->entries()) {
      const tessera::tensor_view* truth = file->tensor("ref." + entry.name.substr(4));
      if (truth == nullptr) continue;
      EXPECT_EQ(entry.tensor.rank, truth->rank) << name << ' ' << entry.name;
      EXPECT_EQ(entry.tensor.extent, truth->extent) << name << ' ' << entry.name;
    }
  }
}

TEST(run, the_type_of_a_product_is_that_of_its_option) {
  std::vector<float> ones(64, 1.0f);
  std::vector<std::int32_t> sizes{3, 5};
  const scratch_folder folder;
  const std::string path = folder / "input.safetensors", output = folder / "output.safetensors";
  ASSERT_TRUE(tessera::write_safetensors(
      path, std::vector<safetensors_entry>{{"lhs", tessera::view(ones.data(), {8, 4})},
                                           {"rhs", tessera::view(ones.data(), {2, 4, 6})},
                                           {"group_sizes", tessera::view(sizes.data(), {2})}}));
  const std::string run = "run grouped_matmul --input " + path + " --output " + output;
  for (const auto& [option, type] :
       {std::pair{"", tessera::dtype::f32}, {" --option out_dtype=bf16", tessera::dtype::bf16}}) {
    const outcome ended = invoke(run + option);
    ASSERT_EQ(ended.status, 0) << ended.err;
    const auto written = safetensors_file::open(output);
    ASSERT_TRUE(written) << written.message();
    EXPECT_EQ(written->tensor("out.out")->type, type);
  }
  expect_refusal(invoke(run + " --option out_dtype=f64"), "out_dtype");
}

// Its operands have 8 bits, and its results none of their types.
TEST(run, results_of_attention_of_8_bits_are_bf16_unless_an_option_says_otherwise) {
  std::vector<tessera::f8_e4m3> ones(64, tessera::f8_e4m3(1.0f));
  const auto rows = tessera::view(ones.data(), {1, 4, 2, 8});
  const scratch_folder folder;
  const std::string path = folder / "input.safetensors", output = folder / "output.safetensors";
  ASSERT_TRUE(tessera::write_safetensors(
      path, std::vector<safetensors_entry>{{"q", rows}, {"k", rows}, {"v", rows}}));
  const std::string run = "run fp8_attention --input " + path + " --output " + output;
  for (const auto& [option, type] :
       {std::pair{"", tessera::dtype::bf16}, {" --option out_dtype=f16", tessera::dtype::f16}}) {
    const outcome ended = invoke(run + option);
    ASSERT_EQ(ended.status, 0) << ended.err;
    const auto written = safetensors_file::open(output);
    ASSERT_TRUE(written) << written.message();
    EXPECT_EQ(written->tensor("out.out")->type, type);
  }
  expect_refusal(invoke(run + " --option out_dtype=f32"), "out_dtype");
}

/// A product of ones, [8,4] and [4,6], with `more`.
void write_product(const std::string& path, std::vector<safetensors_entry> more,
                   const tessera::safetensors_metadata& metadata = {}) {
  static std::vector<float> ones(64, 1.0f);
  more.push_back({"in.lhs", tessera::view(ones.data(), {8, 4})});
  more.push_back({"in.rhs", tessera::view(ones.data(), {4, 6})});
  ASSERT_TRUE(tessera::write_safetensors(path, more, metadata));
}

TEST(run, the_type_of_a_product_is_that_of_its_option_whatever_the_source_wrote) {
  std::vector<tessera::bf16> source(48);
  std::vector<double> truth(48, 4.0);
  const safetensors_entry answers[]{{"out.out", tessera::view(source.data(), {8, 6})},
                                    {"ref.out", tessera::view(truth.data(), {8, 6})}};
  const scratch_folder folder;
  const std::string path = folder / "input.safetensors", output = folder / "output.safetensors";
  for (const std::size_t count : {1, 2}) {
    write_product(path, {answers, answers + count});
    for (const auto& [option, type] :
         {std::pair{"", tessera::dtype::bf16}, {" --option out_dtype=f32", tessera::dtype::f32}}) {
      const outcome ended = invoke("run matmul --input " + path + " --output " + output + option);
      ASSERT_EQ(ended.status, 0) << ended.err;
      const auto written = safetensors_file::open(output);
      ASSERT_TRUE(written) << written.message();
      EXPECT_EQ(written->tensor("out.out")->type, type) << count;
    }
  }
}

// Codes have scales of their own, which no other type may have.
TEST(check, a_product_may_be_codes) {
  std::vector<float> scales(8, 0.5f);
  std::vector<std::int8_t> codes(48, 8);
  const safetensors_entry scale{"in.out_code_scale", tessera::view(scales.data(), {8, 1})};
  const scratch_folder folder;
  const std::string path = folder / "input.safetensors";
  write_product(path, {scale});
  const std::string run = "run matmul --json --input " + path;
  const outcome ended = invoke(run + " --option out_dtype=i8");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(json_of(ended).at("outputs").at("out.out").as_string(), "[8,6]i8");
  expect_refusal(invoke(run), "out_code_scale");
  write_product(path, {scale, {"ref.out", tessera::view(codes.data(), {8, 6})}},
                {{"op", "matmul"}, {"options", R"({"out_dtype": "i8"})"}});
  const outcome judged = invoke("check " + path);
  EXPECT_EQ(judged.status, 0) << judged.out << judged.err;
}

}  // namespace
