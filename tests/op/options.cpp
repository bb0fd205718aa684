// Every optional tensor and option alone and in pairs, through the row that the library chooses,
// for each operand type.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/op/operation_test.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

class options : public operation_test<tested_operation> {};

TEST_P(options, are_right_alone_and_in_pairs) {
  const operation& op = *GetParam().op;
  const std::vector<call_trait> traits = traits_of(op);
  std::vector<bool> is_reached(traits.size());
  for (std::size_t a = 0; a < traits.size(); ++a) {
    for (std::size_t b = a; b < traits.size(); ++b) {
      for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
        const std::array both{traits[a], traits[b]};
        SCOPED_TRACE(std::string(name_of(op, traits[a])) + " " +
                     std::string(name_of(op, traits[b])) + " " + std::string(name_of(type)));
        call_wishes wishes;
        wishes.type = type;
        wishes.traits = std::span(both);
        wishes.density = 0.0;
        wishes.work = 6e4;
        wishes.attempts = 300;
        random_source random =
            stream(5, 4 * (a * traits.size() + b) + static_cast<std::uint64_t>(type));
        const std::unique_ptr<call_data> data = call_here_for(GetParam(), random, wishes);
        if (data == nullptr) continue;  // they exclude each other
        ASSERT_TRUE(data->refusal()) << data->text() << ": " << data->refusal().message();
        is_reached[a] = is_reached[b] = true;
        const call_expectation expectation(data->call());
        std::vector<std::vector<std::byte>> first;
        EXPECT_EQ(complaints_of_call(*GetParam().kind, *data, expectation, {}, first), "")
            << data->text();
        if (HasFailure()) return;
      }
    }
  }
  for (std::size_t a = 0; a < traits.size(); ++a) {
    // A rule may ask for an option that the operation does not have.
    const bool is_ruled_out = op.excluded != 0 && !traits[a].is_option &&
                              std::ranges::any_of(op.form->rules, [&](const tensor_rule& rule) {
                                return static_cast<std::size_t>(rule.tensor) == traits[a].index;
                              });
    EXPECT_TRUE(is_reached[a] || is_ruled_out)
        << name_of(op, traits[a]) << ": no legal call has it";
  }
}

INSTANTIATE_TEST_SUITE_P(operations, options, testing::ValuesIn(tested_operations()),
                         [](const auto& tested) { return std::string(tested.param.op->name); });

}  // namespace
}  // namespace tessera::support
