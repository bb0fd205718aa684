// Bad input through the public API: every refusal is the reviewed sentence
// (tests/golden/refusals), and leaves every byte of every output as it was. Planned runs refuse
// what calls refuse.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/op/operation_test.hpp"
#include "tests/support/call_mutations.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

class misuse : public operation_test<tested_operation> {
 protected:
  /// A changed call, through the API and through a plan for the legal one.
  static void expect_refused(call_data& legal, const call_mutation& mutation,
                             const operation_plan& plan, std::string_view sentence) {
    legal.reset();
    owned_problem changed = legal.owned();
    mutation.apply(changed);
    if (!sees_values_here() && checked(changed, false)) return;
    const status done = call_here(kind(), changed.view());
    EXPECT_EQ(done.code(), status_code::invalid_argument) << done.message();
    // Devices have other names elsewhere.
    const bool names_device = sentence.find("device is") != std::string_view::npos;
    if (kind_here() == device_kind::cpu || !names_device) {
      EXPECT_EQ(done.message(), sentence);
    }
    if (!mutation.option) {
      const status planned =
          run_here(changed.view(), {},
                   [&](const tensor_view* tensors, const context&) { return plan.run(tensors); });
      EXPECT_EQ(planned.code(), status_code::invalid_argument) << "planned: " << planned.message();
    }
    EXPECT_TRUE(legal.outputs_untouched());
  }
};

TEST_P(misuse, is_refused_with_the_reviewed_sentence_and_outputs_untouched) {
  const operation& op = *GetParam().op;
  const std::vector<refusal_section> sections = refusals_of(op.name);
  ASSERT_FALSE(sections.empty()) << refusals_path(op.name);
  for (const refusal_section& section : sections) {
    const std::unique_ptr<call_data> legal = legal_call(op, section.fields);
    SCOPED_TRACE(section.fields);
    ASSERT_TRUE(legal->refusal()) << legal->refusal().message();
    const auto plan =
        plan_operation(kind(), problem_here(legal->problem()), context_here(context{}));
    ASSERT_TRUE(plan) << plan.message();
    const std::vector<call_mutation> mutations = mutations_of(*legal);
    ASSERT_EQ(mutations.size(), section.lines.size());
    for (std::size_t n = 0; n < mutations.size(); ++n) {
      constexpr std::string_view arrow = " -> ";
      const std::size_t split = section.lines[n].find(arrow);
      ASSERT_EQ(section.lines[n].substr(0, split), mutations[n].what);
      const std::string sentence = section.lines[n].substr(split + arrow.size());
      SCOPED_TRACE(mutations[n].what);
      if (sentence != "accepted") expect_refused(*legal, mutations[n], *plan, sentence);
    }
    legal->reset();
    EXPECT_TRUE(call_here(kind(), legal->problem())) << "the legal call";
  }
}

TEST_P(misuse, a_device_that_is_not_there_is_refused_by_name) {
  for (const refusal_section& section : refusals_of(GetParam().op->name)) {
    const std::unique_ptr<call_data> legal = legal_call(*GetParam().op, section.fields);
    owned_problem there = legal->owned();
    for (tensor_view& view : there.tensors) view.device = {device_kind::cuda, 63};
    const status done =
        call_operation(kind(), *there.op, there.tensors.data(), there.options.data(), context{});
    EXPECT_EQ(done.code(), status_code::device) << done.message();
    EXPECT_NE(done.message().find("cuda:63"), std::string::npos) << done.message();
    EXPECT_TRUE(legal->outputs_untouched());
  }
}

TEST_P(misuse, rows_that_are_unknown_or_do_not_run_the_call_are_refused_by_name) {
  const std::string nonsense = std::string(kind().name) + ".nonsense";
  int refused = 0;
  for (const refusal_section& section : refusals_of(GetParam().op->name)) {
    const std::unique_ptr<call_data> legal = legal_call(*GetParam().op, section.fields);
    const status unknown = call_here(kind(), legal->problem(), {.row = nonsense});
    EXPECT_EQ(unknown.code(), status_code::unknown_row);
    EXPECT_NE(unknown.message().find(nonsense), std::string::npos) << unknown.message();
    for (const instance& row : kind().rows()) {
      if (runs_here(row.target) && runs(kind(), row, problem_here(legal->problem()))) continue;
      const status done = call_here(kind(), legal->problem(), {.row = row.name});
      ASSERT_EQ(done.code(), status_code::ineligible_row) << row.name << ": " << done.message();
      EXPECT_NE(done.message().find(row.name), std::string::npos) << done.message();
      ++refused;
    }
    EXPECT_TRUE(legal->outputs_untouched());
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(operations, misuse, testing::ValuesIn(tested_operations()),
                         [](const auto& tested) { return std::string(tested.param.op->name); });

}  // namespace
}  // namespace tessera::support
