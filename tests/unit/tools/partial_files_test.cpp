// `run` and `check` on files that leave out what follows from the rest: gradients beside the
// forward call, what it gives them, and outputs whose shapes and types no answer tells.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/interop/safetensors.hpp>

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

}  // namespace
