// `run` and `check` on golden files, on files of the user's own, and on files that are none.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/interop/safetensors.hpp>

#include "command_runner.hpp"
#include "tests/reference/elements.hpp"
#include "tests/support/compare.hpp"

namespace {

using namespace tessera::testing;
using tessera::safetensors_entry;
using tessera::safetensors_file;
namespace json = boost::json;

std::vector<std::string> golden_files(std::string_view part) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(TESSERA_GOLDEN_DIR)) {
    const std::string path = entry.path().string();
    if (path.find(part) != std::string::npos) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A small file of ones: q, k, v of [1,4,2,8] and what `more` adds.
std::string small_file(const scratch_folder& folder, std::vector<safetensors_entry> more = {},
                       tessera::safetensors_metadata metadata = {}) {
  static std::vector<float> ones(64, 1.0f);
  std::vector<safetensors_entry> entries = std::move(more);
  for (const char* name : {"q", "k", "v"}) {
    if (std::none_of(entries.begin(), entries.end(),
                     [&](const safetensors_entry& entry) { return entry.name == name; })) {
      entries.push_back({name, tessera::view(ones.data(), {1, 4, 2, 8})});
    }
  }
  const std::string path = folder / "input.safetensors";
  EXPECT_TRUE(tessera::write_safetensors(path, entries, metadata));
  return path;
}

TEST(check, every_minilm_file_is_within_bound) {
  std::string files;
  for (const std::string& file : golden_files("minilm")) files += " '" + file + "'";
  ASSERT_FALSE(files.empty());
  const outcome ended = invoke("check --json" + files);
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  const json::value document = json_of(ended);
  EXPECT_TRUE(document.at("passed").as_bool());
  for (const json::value& file : document.at("files").as_array()) {
    const json::value& row = file.at("rows").as_array().at(0);
    EXPECT_FALSE(row.at("row").as_string().empty());
    for (const json::value& tensor : row.at("tensors").as_array()) {
      EXPECT_TRUE(tensor.at("computed").as_bool());
      EXPECT_LE(tensor.at("error").to_number<double>(), tensor.at("bound").to_number<double>());
    }
  }
}

TEST(check, pools_of_eight_bits_are_read_and_written) {
  const outcome ended =
      invoke("check --json --all-rows " + golden("ragged_page_attention_v3.fp8_cache"));
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  const json::value document = json_of(ended);
  const json::array& rows = document.at("files").as_array().at(0).at("rows").as_array();
  EXPECT_GE(rows.size(), 2u);
  for (const json::value& row : rows) {
    bool pool = false;
    for (const json::value& tensor : row.at("tensors").as_array()) {
      pool = pool || tensor.at("name").as_string() == "kv_pages";
    }
    EXPECT_TRUE(pool) << row;
  }
}

TEST(check, every_row_that_fits_is_within_bound) {
  const outcome ended = invoke("check --json --all-rows " + golden("flash_attention.everything"));
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  const json::value document = json_of(ended);
  const json::array& rows = document.at("files").as_array().at(0).at("rows").as_array();
  std::size_t forward = 0, gradients = 0;
  for (const json::value& row : rows) {
    const bool is_gradient = row.at("op").as_string() == "flash_attention_backward";
    ++(is_gradient ? gradients : forward);
    std::size_t judged = 0;
    for (const json::value& tensor : row.at("tensors").as_array()) {
      EXPECT_EQ(tensor.at("name").as_string().starts_with("d_"), is_gradient) << tensor;
      EXPECT_TRUE(tensor.at("passed").as_bool()) << tensor;
      ++judged;
    }
    EXPECT_GE(judged, is_gradient ? 3u : 2u) << row;
  }
  EXPECT_GE(forward, 2u);
  EXPECT_GE(gradients, 2u);
}

TEST(check, an_answer_out_of_bound_is_status_1) {
  const auto opened = safetensors_file::open(golden("flash_attention.full"));
  ASSERT_TRUE(opened) << opened.message();
  std::vector<safetensors_entry> entries(opened->entries().begin(), opened->entries().end());
  // Without the source's own answer, which would be as far from a wrong reference as ours.
  std::erase_if(entries, [](const auto& entry) { return entry.name == "out.out"; });
  std::vector<double> wrong;
  for (safetensors_entry& entry : entries) {
    if (entry.name != "ref.out") continue;
    wrong = tessera::reference::to_doubles(entry.tensor);
    wrong.front() += 1.0;
    entry.tensor.data = wrong.data();
  }
  ASSERT_FALSE(wrong.empty());
  const scratch_folder folder;
  const std::string path = folder / "wrong.safetensors";
  ASSERT_TRUE(tessera::write_safetensors(path, entries, opened->metadata()));
  const outcome ended = invoke("check " + path);
  EXPECT_EQ(ended.status, 1) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("out of bound"), std::string::npos) << ended.out;
}

TEST(check, files_that_cannot_be_judged_are_status_2) {
  const scratch_folder folder;
  EXPECT_EQ(invoke("check " + (folder / "absent")).status, 2);
  const outcome no_op = invoke("check " + small_file(folder));
  EXPECT_EQ(no_op.status, 2);
  EXPECT_NE(no_op.err.find("\"op\""), std::string::npos) << no_op.err;
  const outcome no_reference =
      invoke("check " + small_file(folder, {}, {{"op", "flash_attention"}}));
  EXPECT_EQ(no_reference.status, 2);
  EXPECT_NE(no_reference.err.find("ref."), std::string::npos) << no_reference.err;
  const outcome unknown_op = invoke("check " + small_file(folder, {}, {{"op", "pooling"}}));
  EXPECT_EQ(unknown_op.status, 2);
  EXPECT_NE(unknown_op.err.find("pooling"), std::string::npos) << unknown_op.err;
}

TEST(check, a_good_file_beside_a_bad_one_is_still_judged) {
  const scratch_folder folder;
  write_file(folder / "bad", "not a tensor");
  const outcome ended =
      invoke("check --json " + (folder / "bad") + " " + golden("flash_attention.full"));
  EXPECT_EQ(ended.status, 2);
  const json::value document = json_of(ended);
  EXPECT_FALSE(document.at("passed").as_bool());
  EXPECT_TRUE(document.at("files").as_array().at(1).at("passed").as_bool());
}

/// Runs the operation on a golden file and compares each `out.*` written with `ref.*`.
void expect_run_agrees(const std::string& op, const std::string& file) {
  const scratch_folder folder;
  const std::string output = folder / "output.safetensors";
  const outcome ended =
      invoke("run " + op + " --json --repeat 2 --input '" + file + "' --output " + output);
  ASSERT_EQ(ended.status, 0) << file << ": " << ended.err;
  const json::value report = json_of(ended);
  EXPECT_LE(report.at("milliseconds").at("min").to_number<double>(),
            report.at("milliseconds").at("max").to_number<double>());
  for (const char* key : {"flops", "bytes", "gflops_per_second", "gigabytes_per_second", "row",
                          "tier", "reason", "device"}) {
    EXPECT_TRUE(report.as_object().contains(key)) << key;
  }
  const auto golden_file = safetensors_file::open(file);
  const auto written = safetensors_file::open(output);
  ASSERT_TRUE(golden_file && written) << written.message();
  for (const char* key : {"op", "options", "row", "version"}) {
    EXPECT_TRUE(written->metadata().contains(key)) << key;
  }
  const tessera::tensor_view* q = golden_file->tensor("in.q");
  ASSERT_NE(q, nullptr);
  std::size_t compared = 0;
  for (const safetensors_entry& entry : written->entries()) {
    const std::string name = entry.name.substr(4);
    const tessera::tensor_view* reference = golden_file->tensor("ref." + name);
    if (reference == nullptr) continue;
    const tessera::tensor_view* source = golden_file->tensor("out." + name);
    const auto against = [&](const tessera::tensor_view& view) {
      const auto last = static_cast<std::size_t>(view.rank - 1);
      return tessera::support::compare(tessera::reference::to_doubles(view),
                                       tessera::reference::to_doubles(*reference),
                                       view.extent[last], tessera::support::scale_of(name));
    };
    const auto verdict = tessera::support::judged(against(entry.tensor),
                                                  source != nullptr ? against(*source).error : 0.0,
                                                  tessera::support::floor_of(name, q->type));
    EXPECT_TRUE(verdict.passed) << file << ": "
                                << tessera::support::sentence_of(verdict, name,
                                                                 entry.tensor.shape());
    ++compared;
  }
  EXPECT_GE(compared, 2u) << file;
}

TEST(run, writes_what_the_reference_says) {
  for (const char* name : {"full", "causal_cap", "bf16_gqa", "minilm_layer0_packed", "unnormalized",
                           "dropout", "everything"}) {
    if (fs::exists(golden(std::string("flash_attention.") + name))) {
      expect_run_agrees("flash_attention", golden(std::string("flash_attention.") + name));
    }
  }
  expect_run_agrees("attention", golden("attention.full"));
  expect_run_agrees("attention", golden("attention.bf16"));
  expect_run_agrees("scaled_dot_product_attention", golden("scaled_dot_product_attention.causal"));
}

// Pools that are written have the type of q or one of codes.
TEST(run, writes_pools_that_are_read_too) {
  expect_run_agrees("ragged_page_attention_v3", golden("ragged_page_attention_v3.mixed"));
  expect_run_agrees("chunked_prefill_paged_decode", golden("chunked_prefill_paged_decode.mixed"));
}

TEST(run, every_output_is_written_under_its_name) {
  const scratch_folder folder;
  const std::string output = folder / "output.safetensors";
  const std::string input = small_file(folder);
  ASSERT_EQ(invoke("run attention --option dropout_probability=0.5 --option dropout_seed=7 "
                   "--option causal_alignment=top_left --input " +
                   input + " --output " + output)
                .status,
            0);
  const auto written = safetensors_file::open(output);
  ASSERT_TRUE(written) << written.message();
  for (const char* name : {"out.out", "out.lse", "out.weights", "out.dropout_mask"}) {
    EXPECT_NE(written->tensor(name), nullptr) << name;
  }
  const json::value options = json::parse(written->metadata().find("options")->second);
  EXPECT_EQ(options.at("dropout_probability").as_double(), 0.5);
  EXPECT_EQ(options.at("causal_alignment").as_string(), "top_left");

  ASSERT_EQ(invoke("run flash_attention --option normalize=false --input " + input + " --output " +
                   output)
                .status,
            0);
  const auto raw = safetensors_file::open(output);
  ASSERT_TRUE(raw) << raw.message();
  EXPECT_NE(raw->tensor("out.row_max"), nullptr);
  EXPECT_EQ(raw->tensor("out.weights"), nullptr);
}

TEST(run, row_and_backend_are_obeyed_or_refused) {
  const scratch_folder folder;
  const std::string input = " --input " + small_file(folder);
  const outcome listed = invoke("list --json --op flash_attention --backend cpu_generic");
  const json::value rows = json_of(listed);
  std::string generic;
  for (const json::value& row : rows.at("rows").as_array()) {
    const json::value& config = row.at("config");
    if (config.at("type").as_string() == "f32" && config.at("phase").as_string() == "prefill" &&
        config.at("keys").as_string() == "contiguous") {
      generic = std::string(row.at("name").as_string());
    }
  }
  ASSERT_FALSE(generic.empty());
  const outcome named = invoke("run flash_attention --json --row " + generic + input);
  ASSERT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(json_of(named).at("row").as_string(), generic);
  EXPECT_EQ(json_of(named).at("tier").as_string(), "override");
  EXPECT_EQ(invoke("run flash_attention --row no.such.row" + input).status, 1);
  EXPECT_EQ(invoke("run flash_attention --backend cpu" + input).status, 0);
  EXPECT_EQ(invoke("run flash_attention --backend cuda" + input).status, 1);
  expect_refusal(invoke("run flash_attention --backend tpu" + input), "tpu");
}

TEST(run, unknown_names_and_wrong_values_are_refused_by_name) {
  const scratch_folder folder;
  const std::string input = " --input " + small_file(folder);
  const std::string run = "run flash_attention" + input + " --option ";
  expect_refusal(invoke(run + "window=3"), "\"window\"");
  expect_refusal(invoke(run + "causal"), "NAME=VALUE");
  expect_refusal(invoke(run + "causal=1"), "true or false");
  expect_refusal(invoke(run + "window_left=-1"), "window_left");
  expect_refusal(invoke(run + "window_left=1.5"), "window_left");
  expect_refusal(invoke(run + "causal_alignment=middle"), "top_left");
  expect_refusal(invoke(run + "dropout_probability=1"), "dropout_probability");
  expect_refusal(invoke(run + "dropout_seed=-1"), "dropout_seed");
  expect_refusal(invoke("run softmax" + input), "softmax");

  std::vector<float> more(64, 1.0f);
  const std::string unknown = small_file(folder, {{"rope", tessera::view(more.data(), {64})}});
  expect_refusal(invoke("run flash_attention --input " + unknown), "\"rope\"");
  const std::string twice =
      small_file(folder, {{"in.q", tessera::view(more.data(), {1, 4, 2, 8})}});
  expect_refusal(invoke("run flash_attention --input " + twice), "2 times");
  const std::string narrow = small_file(folder, {{"k", tessera::view(more.data(), {1, 8, 2, 4})}});
  expect_refusal(invoke("run flash_attention --input " + narrow), "k");
  expect_refusal(invoke("run flash_attention --input " +
                        small_file(folder, {}, {{"options", "{\"windows\": 1}"}})),
                 "windows");
  expect_refusal(invoke("run flash_attention --input " +
                        small_file(folder, {}, {{"options", "{\"causal\": "}})),
                 "options");
}

// What is wrong is said, not that outputs could not be made for it.
TEST(run, contents_that_do_not_fit_are_refused_by_tensor_and_number) {
  std::vector<float> ones(64, 1.0f);
  const tessera::tensor_view rows = tessera::view(ones.data(), {4, 2, 8});
  std::vector<std::int32_t> starts{0, 3, 1048576};
  const tessera::tensor_view offsets = tessera::view(starts.data(), {3});
  const scratch_folder folder;
  const std::string path = small_file(folder, {{"q", rows},
                                               {"k", rows},
                                               {"v", rows},
                                               {"cu_seqlens_q", offsets},
                                               {"cu_seqlens_k", offsets}});
  const outcome ended = invoke("run flash_attention --input " + path);
  expect_refusal(ended, "cu_seqlens_q");
  expect_refusal(ended, "1048576");
}

TEST(run, hostile_files_are_refused) {
  const scratch_folder folder;
  const std::string whole = contents_of(golden("flash_attention.full"));
  const std::string path = folder / "hostile.safetensors";
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, whole.size() - 1}) {
    write_file(path, std::string_view(whole).substr(0, size));
    expect_refusal(invoke("run flash_attention --input " + path), path);
  }
  write_file(path, std::string(8, '\xff') + whole.substr(8));
  expect_refusal(invoke("run flash_attention --input " + path), path);
  expect_refusal(invoke("run flash_attention --input /"), "/");
  expect_refusal(invoke("run flash_attention --input " + golden("flash_attention.full") +
                        " --output " + (folder / "no/such/folder")),
                 "no/such/folder");
}

}  // namespace
