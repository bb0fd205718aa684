// What every recurrence is besides a formula: a sequence may be cut anywhere and continue in place,
// packed equals separate, tokens of nobody are not looked at, reversed tokens are tokens, memories
// that last stay accurate.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/place.hpp"

namespace tessera::support {
namespace {

/// A call of a recurrence with both states, all of its tensors row-major.
class recurrence {
 public:
  explicit recurrence(std::string_view text, std::uint64_t seed = 1)
      : kind_(family_of(text)), random_(seed), data_(problem_of(text), random_, wishes) {
    if (!data_.refusal()) throw std::invalid_argument(data_.refusal().message());
  }

  call_data& data() { return data_; }
  owned_problem whole() const { return data_.owned(); }
  const tensor_view& tensor(std::string_view name) const { return data_.tensors()[place(name)]; }
  std::size_t place(std::string_view name) const {
    const auto tensors = data_.op().form->tensors;
    return static_cast<std::size_t>(std::ranges::find(tensors, name, &tensor_form::name) -
                                    tensors.begin());
  }

  /// Tokens [begin, end), without offsets; the states are for the caller to say.
  owned_problem tokens(std::int64_t begin, std::int64_t end) const {
    owned_problem part = data_.owned();
    for (std::size_t i = 0; i < part.tensors.size(); ++i) {
      const int axis = axis_of_tokens(i);
      if (axis < 0) continue;
      const auto at = static_cast<std::size_t>(axis);
      tensor_view& view = part.tensors[i];
      const auto size = static_cast<std::int64_t>(size_of(view.type));
      view.data = static_cast<std::byte*>(view.data) + begin * view.stride[at] * size;
      view.extent[at] = end - begin;
    }
    for (const std::string_view list : {"cu_seqlens", "state_indices"}) {
      if (has(list)) part.tensors[place(list)] = {};
    }
    return part;
  }

  /// Every tensor's tokens from the last to the first.
  owned_problem backwards() const {
    owned_problem turned = data_.owned();
    for (std::size_t i = 0; i < turned.tensors.size(); ++i) {
      const int axis = axis_of_tokens(i);
      if (axis < 0) continue;
      const auto at = static_cast<std::size_t>(axis);
      tensor_view& view = turned.tensors[i];
      const auto size = static_cast<std::int64_t>(size_of(view.type));
      view.data =
          static_cast<std::byte*>(view.data) + (view.extent[at] - 1) * view.stride[at] * size;
      view.stride[at] = -view.stride[at];
    }
    return turned;
  }

  void run(const owned_problem& call, int threads = 0) const {
    const status done = call_here(kind_, call.view(), {.threads = threads});
    EXPECT_TRUE(done) << done.message();
  }
  std::vector<double> numbers(std::string_view name) const {
    return reference::to_doubles(tensor(name));
  }
  std::int64_t length() const {
    const std::size_t out = place("out");
    return data_.tensors()[out].extent[static_cast<std::size_t>(axis_of_tokens(out))];
  }
  /// State n of a tensor of states, as a tensor of one.
  tensor_view state(std::string_view name, std::int64_t n) const {
    tensor_view row = tensor(name);
    row.data = static_cast<std::byte*>(row.data) +
               n * row.stride[0] * static_cast<std::int64_t>(size_of(row.type));
    row.extent[0] = 1;
    return row;
  }

 private:
  static constexpr memory_wishes wishes{.row_major = true, .poison = false, .even = true};

  static const family& family_of(std::string_view text) {
    return *operation_named(text.substr(0, text.find(' '))).kind;
  }
  /// With a final state like the initial one, which the text of a problem leaves out.
  static owned_problem problem_of(std::string_view text) {
    const operation& op = *operation_named(text.substr(0, text.find(' '))).op;
    owned_problem problem = whole_problem(op, text.substr(text.find(' ') + 1), false).value();
    const auto tensors = op.form->tensors;
    const auto named = [&](std::string_view name) -> tensor_view& {
      const auto at = std::ranges::find(tensors, name, &tensor_form::name) - tensors.begin();
      return problem.tensors[static_cast<std::size_t>(at)];
    };
    named("final_state") = named("initial_state");
    return problem;
  }
  bool has(std::string_view name) const {
    const std::size_t at = place(name);
    return at < data_.op().form->tensors.size() && data_.call().has(at);
  }
  int axis_of_tokens(std::size_t tensor) const {
    if (!data_.call().has(tensor)) return -1;
    const signature& form = *data_.op().form;
    const shape_form& shape = form.shape(tensor, data_.call().layout);
    for (int axis = 0; axis < shape.rank; ++axis) {
      const std::int8_t dim = shape.axes[static_cast<std::size_t>(axis)].dim;
      if (dim >= 0 && form.dims[static_cast<std::size_t>(dim)].symbol == "T") return axis;
    }
    return -1;
  }

  const family& kind_;
  random_source random_;
  call_data data_;
};

/// An operation whose tokens are as many as a test wants. A token alone steps through states in
/// place where their rows are whole registers: values of some are, of others not.
struct tested_recurrence {
  std::string_view op;
  std::string_view tensors;  ///< "%": tokens; "$": states
};
void PrintTo(const tested_recurrence& recurrence, std::ostream* stream) {
  *stream << recurrence.op;
}

constexpr tested_recurrence delta_rules[] = {
    {"gated_delta_rule",
     "q=[1,%,2,20]f32 v=[1,%,4,9] g=[1,%,4]f32 beta=[1,%,4]f32 initial_state=[$,4,20,9]f32"},
    {"kernel_delta_attention",
     "q=[1,%,2,20]bf16 v=[1,%,4,48] gk=[1,%,4,20]f32 beta=[1,%,4]bf16 "
     "initial_state=[$,4,20,48]f32 use_qk_l2norm=true"},
    {"rwkv7", "r=[1,%,2,20]f32 w=[1,%,2,20]f32 v=[1,%,2,70] initial_state=[$,2,20,70]f32"},
    {"rwkv7_mul", "r=[1,%,2,20]f32 w=[1,%,2,20]f32 v=[1,%,2,16] initial_state=[$,2,20,16]f32"},
};
constexpr tested_recurrence elementwise[] = {
    {"state_space_v1", "x=[1,%,101]f32 A=[101,16]f32 B=[1,%,16] initial_state=[$,101,16]f32"},
    {"state_space_v2",
     "x=[1,%,4,12]f32 A=[4]f32 B=[1,%,2,16] initial_state=[$,4,12,16]f32 dt_softplus=true"},
    {"rwkv4", "k=[1,%,37]f32 initial_state=[$,3,37]f32"},
};
constexpr tested_recurrence linear[] = {
    {"recurrent",
     "q=[1,%,4,20]f32 k=[1,%,2,20] v=[1,%,2,48] gk=[1,%,4,20]f32 initial_state=[$,4,20,48]f32"},
    {"rwkv6", "r=[1,%,2,20]f32 v=[1,%,2,32] initial_state=[$,2,20,32]f32"},
};

std::string text_of(const tested_recurrence& of, std::int64_t tokens, std::int64_t states,
                    std::string_view more = {}) {
  std::string text = std::string(of.op) + ' ';
  for (const char letter : of.tensors) {
    if (letter == '%') {
      text += std::to_string(tokens);
    } else if (letter == '$') {
      text += std::to_string(states);
    } else {
      text += letter;
    }
  }
  return text.append(more);
}

/// The greatest difference of two numbers, relative to the greatest that is expected.
double relative_difference(const std::vector<double>& given, const std::vector<double>& expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(given.at(i))) return std::numeric_limits<double>::infinity();
    difference = std::fmax(difference, std::fabs(given.at(i) - expected[i]));
    largest = std::fmax(largest, std::fabs(expected[i]));
  }
  return difference / largest;
}

class recurrences : public testing::TestWithParam<tested_recurrence> {};

// Tokens that pass a state together round as one: cuts between such groups keep every bit, others
// keep the sums.
TEST_P(recurrences, continue_where_their_state_was_left_in_place) {
  constexpr std::int64_t length = 100;
  recurrence recurrence(text_of(GetParam(), length, 1));
  recurrence.run(recurrence.whole());
  const std::vector<double> out = recurrence.numbers("out"),
                            behind = recurrence.numbers("final_state");
  const auto run_cut = [&](std::initializer_list<std::int64_t> ends) {
    recurrence.data().reset();
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      owned_problem part = recurrence.tokens(begin, end);
      part.tensors[recurrence.place("final_state")] = recurrence.tensor("initial_state");
      recurrence.run(part);
      begin = end;
    }
  };
  run_cut({16, 16, 48, 96, 100});
  EXPECT_EQ(recurrence.numbers("out"), out);
  EXPECT_EQ(recurrence.numbers("initial_state"), behind);
  run_cut({1, 1, 17, 81, 100});
  EXPECT_LT(relative_difference(recurrence.numbers("out"), out), 1e-5);
  EXPECT_LT(relative_difference(recurrence.numbers("initial_state"), behind), 1e-5);
}

TEST_P(recurrences, packed_have_the_bits_of_separate_ones) {
  constexpr std::int64_t length = 95;
  constexpr std::int32_t offsets[] = {0, 0, 33, 34, 34, 90};
  recurrence recurrence(text_of(GetParam(), length, 5, " cu_seqlens=[6]i32"));
  auto* const written = static_cast<std::int32_t*>(recurrence.tensor("cu_seqlens").data);
  std::ranges::copy(offsets, written);
  recurrence.run(recurrence.whole());
  const std::vector<double> out = recurrence.numbers("out"),
                            behind = recurrence.numbers("final_state");
  const std::size_t of_token = out.size() / static_cast<std::size_t>(length);
  EXPECT_TRUE(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(90 * of_token), out.end(),
                          [](double x) { return x == 0; }));
  for (std::int64_t n = 0; n < 5; ++n) {
    owned_problem part = recurrence.tokens(offsets[n], offsets[n + 1]);
    part.tensors[recurrence.place("initial_state")] = recurrence.state("initial_state", n);
    part.tensors[recurrence.place("final_state")] = recurrence.state("final_state", n);
    recurrence.run(part);
  }
  EXPECT_EQ(recurrence.numbers("out"), out);
  EXPECT_EQ(recurrence.numbers("final_state"), behind);
}

// Threads cut the values of few heads, which lone tokens step through in place or do not.
TEST_P(recurrences, of_lone_tokens_have_the_same_bits_with_any_number_of_threads) {
  recurrence recurrence(text_of(GetParam(), 1, 1));
  recurrence.run(recurrence.whole(), 1);
  const std::vector<double> out = recurrence.numbers("out"),
                            behind = recurrence.numbers("final_state");
  for (const int threads : {2, 3, 16}) {
    recurrence.data().reset();
    recurrence.run(recurrence.whole(), threads);
    EXPECT_EQ(recurrence.numbers("out"), out) << threads << " threads";
    EXPECT_EQ(recurrence.numbers("final_state"), behind) << threads << " threads";
  }
}

class pools_of_states : public recurrences {};

// Sequences of a pool have the bits of the same without one; slots of nobody keep theirs.
TEST_P(pools_of_states, are_updated_in_place) {
  constexpr std::int64_t length = 40;
  constexpr std::int32_t offsets[] = {0, 1, 1, 30, 33}, slots[] = {4, -1, 0, 2};
  recurrence recurrence(text_of(GetParam(), length, 5, " cu_seqlens=[5]i32 state_indices=[4]i32"));
  std::ranges::copy(offsets, static_cast<std::int32_t*>(recurrence.tensor("cu_seqlens").data));
  std::ranges::copy(slots, static_cast<std::int32_t*>(recurrence.tensor("state_indices").data));
  std::vector<double> expected = recurrence.numbers("initial_state");
  const std::size_t size = expected.size() / 5;
  for (std::size_t n = 0; n < 4; ++n) {
    if (offsets[n] == offsets[n + 1]) continue;
    owned_problem part = recurrence.tokens(offsets[n], offsets[n + 1]);
    part.tensors[recurrence.place("initial_state")] = recurrence.state("initial_state", slots[n]);
    part.tensors[recurrence.place("final_state")] = recurrence.state("final_state", slots[n]);
    recurrence.run(part);
    const std::vector<double> behind = recurrence.numbers("final_state");
    const auto first = static_cast<std::ptrdiff_t>(size) * slots[n];
    std::copy_n(behind.begin() + first, size, expected.begin() + first);
  }
  const std::vector<double> out = recurrence.numbers("out");
  owned_problem pooled = recurrence.whole();
  pooled.tensors[recurrence.place("final_state")] = recurrence.tensor("initial_state");
  recurrence.run(pooled);
  const auto of_sequences = static_cast<std::ptrdiff_t>(out.size() / length * 33);
  const std::vector<double> together = recurrence.numbers("out");
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + of_sequences, together.begin()));
  EXPECT_EQ(recurrence.numbers("initial_state"), expected);
}

TEST_P(recurrences, do_not_look_at_tokens_of_nobody) {
  constexpr std::int64_t length = 40;
  recurrence recurrence(text_of(GetParam(), length, 2, " cu_seqlens=[3]i32"));
  auto* const offsets = static_cast<std::int32_t*>(recurrence.tensor("cu_seqlens").data);
  std::ranges::copy(std::array<std::int32_t, 3>{0, 21, 30}, offsets);
  recurrence.run(recurrence.whole());
  const std::vector<double> out = recurrence.numbers("out"),
                            behind = recurrence.numbers("final_state");
  owned_problem tail = recurrence.tokens(30, length);
  for (std::size_t i = 0; i < tail.tensors.size(); ++i) {
    const tensor_view& view = tail.tensors[i];
    const bool read = view.present() && !recurrence.data().op().form->tensors[i].is_output();
    if (!read || view.data == recurrence.whole().tensors[i].data) continue;  // has no tokens
    reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      reference::store(view, offset, std::numeric_limits<double>::quiet_NaN());
    });
  }
  recurrence.run(recurrence.whole());
  EXPECT_EQ(recurrence.numbers("out"), out);
  EXPECT_EQ(recurrence.numbers("final_state"), behind);
}

TEST_P(recurrences, in_reverse_are_those_of_tokens_turned_round) {
  const auto options = operation_named(GetParam().op).op->form->options;
  if (std::ranges::find(options, "reverse", &option_form::name) == options.end()) {
    GTEST_SKIP() << "has one direction";
  }
  recurrence recurrence(text_of(GetParam(), 60, 1, " reverse=true"));
  recurrence.run(recurrence.whole());
  const std::vector<double> out = recurrence.numbers("out"),
                            behind = recurrence.numbers("final_state");
  recurrence.data().reset();
  owned_problem turned = recurrence.backwards();
  for (const option_form& option : options) {
    if (option.name == "reverse") {
      ASSERT_TRUE(text::read_option(option, "false", turned.options.data()));
    }
  }
  recurrence.run(turned);
  EXPECT_EQ(recurrence.numbers("out"), out);
  EXPECT_EQ(recurrence.numbers("final_state"), behind);
}

// Those of chunked_scan round a decay once for all tokens: chunked_scan/properties.cpp has their
// bound.
class lasting_memories : public recurrences {};

// Decays of 1e-5 a token, or as near to 1 as raw ones are: what was first is there at the end.
TEST_P(lasting_memories, stay_accurate_for_a_hundred_thousand_tokens) {
  constexpr tested_recurrence slow[] = {
      {"gated_delta_rule",
       "q=[1,%,1,4]f32 v=[1,%,1,3] g=[1,%,1]f32 beta=[1,%,1]f32 initial_state=[$,1,4,3]f32"},
      {"kernel_delta_attention",
       "q=[1,%,1,4]f32 v=[1,%,1,3] gk=[1,%,1,4]f32 beta=[1,%,1]f32 initial_state=[$,1,4,3]f32"},
      {"rwkv7", "r=[1,%,1,2]f32 w=[1,%,1,2]f32 v=[1,%,1,3] initial_state=[$,1,2,3]f32"},
      {"rwkv7_mul", "r=[1,%,1,2]f32 w=[1,%,1,2]f32 v=[1,%,1,3] initial_state=[$,1,2,3]f32"},
      {"state_space_v1", "x=[1,%,3]f32 A=[3,2]f32 B=[1,%,2] initial_state=[$,3,2]f32"},
      {"state_space_v2", "x=[1,%,1,3]f32 A=[1]f32 B=[1,%,1,2] initial_state=[$,1,3,2]f32"},
      {"rwkv4", "k=[1,%,3]f32 initial_state=[$,3,3]f32"},
  };
  const auto of = std::ranges::find(slow, GetParam().op, &tested_recurrence::op);
  ASSERT_NE(of, std::end(slow));
  recurrence recurrence(text_of(*of, 100000, 1));
  const auto set = [&](std::string_view name, double value) {
    const tensor_view& view = recurrence.tensor(name);
    reference::for_each_element(
        view, [&](std::int64_t, std::int64_t offset) { reference::store(view, offset, value); });
  };
  const bool is_low_rank = GetParam().op.starts_with("rwkv7");
  const bool is_selective = GetParam().op.starts_with("state_space");
  for (const std::string_view decay : {"g", "gk", "w"}) {
    if (recurrence.place(decay) >= recurrence.data().op().form->tensors.size()) continue;
    if (recurrence.data().call().has(recurrence.place(decay))) {
      set(decay, GetParam().op == "rwkv4" ? std::log(1e-5) : -1e-5);
    }
  }
  if (is_low_rank) set(GetParam().op == "rwkv7" ? "b" : "kk", 0);  // states that stay bounded
  if (is_selective) set("A", -1e-5), set("dt", 1);
  const call_expectation expectation(recurrence.data().call());
  recurrence.run(recurrence.whole());
  EXPECT_EQ(expectation.complaints(recurrence.data().tensors()), "");
}

const auto name_of_recurrence = [](const auto& info) { return std::string(info.param.op); };
INSTANTIATE_TEST_SUITE_P(delta_rule, recurrences, testing::ValuesIn(delta_rules),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(selective_scan, recurrences, testing::ValuesIn(elementwise),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(delta_rule, lasting_memories, testing::ValuesIn(delta_rules),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(selective_scan, lasting_memories, testing::ValuesIn(elementwise),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(delta_rule, pools_of_states, testing::ValuesIn(delta_rules),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(selective_scan, pools_of_states, testing::ValuesIn(elementwise),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(chunked_scan, pools_of_states, testing::ValuesIn(linear),
                         name_of_recurrence);
INSTANTIATE_TEST_SUITE_P(chunked_scan, recurrences, testing::ValuesIn(linear), name_of_recurrence);

}  // namespace
}  // namespace tessera::support
