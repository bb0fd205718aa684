// Every refusal of every operation, derived from its declaration: one thing of a legal call changed
// at a time. The sentences are reviewed text, tests/golden/refusals/<op>.txt;
// TESSERA_WRITE_REFUSALS=1 writes it anew.
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <tessera/runtime/family.hpp>

#include "tests/support/declared_call.hpp"

namespace tessera::support {
namespace {

/// A legal problem per layout of each operation; the tensors that are not here follow.
const std::multimap<std::string_view, std::string_view> legal_problems{
    {"flash_attention", "q=[2,5,4,8]f32 k=[2,7,2,8] v=[2,7,2,4]"},
    {"flash_attention", "q=[5,4,8]f32 k=[7,2,8] cu_seqlens_q=[3]i32 cu_seqlens_k=[3]i32"},
    {"flash_attention", "q=[2,5,4,8]f32 k=[2,7,2,8] dropout_probability=0.5 normalize=false"},
    {"attention", "q=[2,5,4,8]bf16 k=[2,7,2,8]"},
    {"scaled_dot_product_attention", "q=[2,5,4,8]f16 k=[2,7,2,8]"},
    {"mean_pooling", "x=[2,5,8]f32"},
    {"mean_pooling", "x=[9,8]f32 cu_seqlens=[3]i32"},
    {"mean_pooling_chunks", "x=[2,5,2,8]f32 chunk_size=2"},
    {"mean_pooling_chunks", "x=[1,8,2,8]f32 cu_seqlens=[3]i32 chunk_size=2"},
    {"mean_pooling_backward", "x=[2,5,8]f32"},
    {"mean_pooling_backward", "x=[9,8]f32 cu_seqlens=[3]i32"},
    {"mean_pooling_chunks_backward", "x=[2,5,2,8]f32 chunk_size=2"},
};

class refusal_list {
 public:
  refusal_list(const operation& op, std::string_view fields) : op_(op), fields_(fields) {}

  std::string text() {
    declared_call legal(op_, fields_);
    EXPECT_TRUE(legal.refusal()) << fields_ << ": " << legal.refusal().message();
    EXPECT_TRUE(legal.checked()) << fields_ << ": " << legal.checked().message();
    lines_ << "# " << op_.name << " " << fields_ << "\n";
    for (std::size_t i = 0; i < op_.form->tensors.size(); ++i) mutate_tensor(i);
    for (const option_form& option : op_.form->options) mutate_option(option);
    return lines_.str();
  }

 private:
  using change = std::function<void(declared_call&)>;

  void line(const std::string& what, const change& apply) {
    declared_call call(op_, fields_);
    apply(call);
    const status done = call.checked();
    std::string sentence = done ? "accepted" : done.message();
    EXPECT_TRUE(done || sentence.find(": ") != std::string::npos) << what << ": " << sentence;
    lines_ << what << " -> " << sentence << "\n";
  }
  void on_view(const std::string& what, std::size_t tensor,
               const std::function<void(tensor_view&)>& apply) {
    line(std::string(op_.form->tensors[tensor].name) + " " + what,
         [&](declared_call& call) { apply(call.tensors()[tensor]); });
  }

  void mutate_tensor(std::size_t tensor) {
    declared_call legal(op_, fields_);
    const tensor_view view = legal.tensors()[tensor];
    const tensor_form& form = op_.form->tensors[tensor];
    if (!view.present()) {
      on_view("given", tensor, [&](tensor_view& to) { to = legal.tensors()[op_.order[0]]; });
      return;
    }
    on_view("absent", tensor, [](tensor_view& to) { to = {}; });
    on_view("of rank " + std::to_string(view.rank + 1), tensor, [](tensor_view& to) {
      to.extent[static_cast<std::size_t>(to.rank)] = 1;
      ++to.rank;
    });
    const dtype other = form.types.has(dtype::f64) ? dtype::i64 : dtype::f64;
    on_view("of another dtype", tensor, [&](tensor_view& to) { to.type = other; });
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
      const std::string name = "axis " + std::to_string(axis);
      on_view(name + " + 1", tensor, [&](tensor_view& to) { ++to.extent[axis]; });
      on_view(name + " negative", tensor, [&](tensor_view& to) { to.extent[axis] = -1; });
    }
    on_view("without memory", tensor, [](tensor_view& to) { to.data = nullptr; });
    on_view("on another device", tensor, [](tensor_view& to) {
      to.device = {device_kind::cuda, 1};
    });
    on_view("with stride 2", tensor,
            [&](tensor_view& to) { to.stride[static_cast<std::size_t>(to.rank - 1)] = 2; });
    if (size_of(view.type) > 1) {
      on_view("one byte further", tensor,
              [](tensor_view& to) { to.data = static_cast<std::byte*>(to.data) + 1; });
    }
    if (form.is_output()) mutate_output(tensor);
    if (form.holds != tensor_contents::values) mutate_contents(tensor, view.elements());
  }

  void mutate_output(std::size_t tensor) {
    on_view("read-only", tensor, [](tensor_view& to) { to.read_only = true; });
    on_view("folded", tensor, [](tensor_view& to) { to.stride[0] = 0; });
    line(std::string(op_.form->tensors[tensor].name) + " where the first tensor lies",
         [&](declared_call& call) {
           call.tensors()[tensor].data = call.tensors()[op_.order[0]].data;
         });
  }

  void mutate_contents(std::size_t tensor, std::int64_t entries) {
    for (const std::int64_t entry : {std::int64_t{0}, entries - 1}) {
      for (const std::int32_t value : {-1, 1000}) {
        on_view("entry " + std::to_string(entry) + " = " + std::to_string(value), tensor,
                [&](tensor_view& to) { static_cast<std::int32_t*>(to.data)[entry] = value; });
      }
    }
  }

  template <class Value>
  void set(const option_form& option, const std::string& what, Value value) {
    line(std::string(option.name) + " = " + what,
         [&](declared_call& call) { text::option_at<Value>(option, call.options()) = value; });
  }

  void mutate_option(const option_form& option) {
    using optional_number = std::optional<double>;
    using optional_integer = std::optional<std::int64_t>;
    constexpr double infinite = std::numeric_limits<double>::infinity();
    switch (option.type) {
      case option_type::flag:
        return set(option, "true", true), set(option, "false", false);
      case option_type::integer:
        return set(option, "-1", std::int64_t{-1}), set(option, "7", std::int64_t{7});
      case option_type::natural:
        return set(option, "7", std::uint64_t{7});
      case option_type::number:
        return set(option, "-1", -1.0), set(option, "inf", infinite),
               set(option, "nan", std::numeric_limits<double>::quiet_NaN()),
               set(option, "0.25", 0.25);
      case option_type::optional_integer:
        return set(option, "-1", optional_integer(-1)), set(option, "7", optional_integer(7));
      case option_type::optional_number:
        return set(option, "-1", optional_number(-1.0)),
               set(option, "inf", optional_number(infinite)),
               set(option, "0", optional_number(0.0)), set(option, "0.5", optional_number(0.5));
      case option_type::choice:
        return set(option, "99", std::uint8_t{99});
    }
  }

  const operation& op_;
  std::string_view fields_;
  std::ostringstream lines_;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Refusals, OfEveryOperationAreTheReviewedText) {
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) {
      const auto [first, last] = legal_problems.equal_range(op.name);
      ASSERT_NE(first, last) << op.name << " has no legal problem here";
      std::string text;
      for (auto problem = first; problem != last; ++problem) {
        text += refusal_list(op, problem->second).text();
      }
      const std::string path =
          std::string(TESSERA_GOLDEN_DIR) + "/refusals/" + std::string(op.name) + ".txt";
      if (std::getenv("TESSERA_WRITE_REFUSALS") != nullptr) std::ofstream(path) << text;
      EXPECT_EQ(content_of(path), text) << path;
    }
  }
}

}  // namespace
}  // namespace tessera::support
