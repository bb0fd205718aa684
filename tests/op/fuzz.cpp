// Random calls of every operation, legal and illegal: each is right or refused with a reason.
// Settings as in support/fuzz.hpp.
#include "tests/support/fuzz.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/call_mutations.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/fuzz_call.hpp"

namespace tessera::support {
namespace {

/// Descriptions of a tensor that no program would write.
call_mutation hostile_view(const operation& op, random_source& random) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto tensor =
      static_cast<std::size_t>(random.below(static_cast<std::int64_t>(op.form->tensors.size())));
  const std::uint64_t seed = random.bits();
  // Numbers that decide what a call touches are read wherever they are said to lie.
  const bool is_read = op.form->tensors[tensor].holds != tensor_contents::values;
  return {"hostile " + std::string(op.form->tensors[tensor].name), false, [=](owned_problem& call) {
            random_source bits(seed);
            tensor_view& view = call.tensors[tensor];
            const auto wild = [&](std::int64_t value) {
              if (bits.chance(0.6)) return value;
              return bits.pick<std::int64_t>({0, 1, -1, most, -most - 1, most / 2, most / 3,
                                              std::int64_t{1} << 32, std::int64_t{1} << 54});
            };
            for (std::size_t axis = 0; axis < view.extent.size(); ++axis) {
              view.extent[axis] = wild(view.extent[axis]);
              const std::int64_t stride = wild(view.stride[axis]);
              if (!is_read) view.stride[axis] = stride;
            }
            if (bits.chance(0.2)) view.rank = static_cast<std::int8_t>(bits.between(-128, 127));
            if (bits.chance(0.2)) view.type = static_cast<dtype>(bits.below(256));
            if (bits.chance(0.1)) view.device.ordinal = static_cast<std::int32_t>(bits.bits());
            if (bits.chance(0.1)) view.data = nullptr;
          }};
}

/// "q", "causal", ...: what a sentence is about.
bool names_something(const operation& op, std::string_view sentence) {
  const std::string_view name = sentence.substr(0, sentence.find(':'));
  bool known = false;
  for (const tensor_form& tensor : op.form->tensors) known = known || tensor.name == name;
  for (const option_form& option : op.form->options) known = known || option.name == name;
  return known;
}

/// The same call with one thing wrong; false if no change that was tried makes it illegal.
bool check_illegal(const family& kind, call_data& data, random_source& random, fuzz_tally& counts) {
  const std::vector<call_mutation> mutations = mutations_of(data);
  for (int attempt = 0; attempt < 20; ++attempt) {
    const call_mutation wrong =
        random.chance(0.3) ? hostile_view(data.op(), random) : random.pick(std::span(mutations));
    owned_problem changed = data.owned();
    wrong.apply(changed);
    const bool harmless = static_cast<bool>(checked(changed, sees_values_here()));
    if (!harmless) {
      ++counts.refused;
      const status done = call_here(kind, changed.view());
      EXPECT_EQ(done.code(), status_code::invalid_argument) << wrong.what << ": " << done.message();
      EXPECT_TRUE(names_something(data.op(), done.message())) << done.message();
      EXPECT_TRUE(data.outputs_untouched()) << wrong.what << " of " << data.text();
    }
    data.reset();
    if (!harmless) return true;
  }
  return false;
}

TEST(fuzz, every_call_is_right_or_refused_with_a_reason) {
  std::vector<tested_operation> all = tested_operations();
  std::erase_if(all, [](const tested_operation& operation) {
    return !why_not_here(*operation.kind).empty();
  });
  const std::vector<tested_row> rows = tested_rows();
  run_fuzz([&](random_source& random, fuzz_tally& counts) {
    const tested_operation& tested = random.pick(std::span<const tested_operation>(all));
    const family& kind = *tested.kind;
    // Half of the calls name a row, most of these are drawn for it.
    const tested_row row = random.pick(std::span(rows));
    const bool named = row.kind == &kind && random.chance(0.7);
    const call_wishes wishes{.work = 6e4, .attempts = 2000};
    std::unique_ptr<call_data> data;
    if (named && random.chance(0.85)) data = call_for(row, *tested.op, random, wishes);
    if (data == nullptr) {
      data = call_here_for(tested, random, wishes, {.aligned = random.chance(0.5)});
    }
    ASSERT_NE(data, nullptr) << tested.op->name << ": no legal call is drawn";
    ASSERT_TRUE(data->refusal()) << data->text() << ": " << data->refusal().message();
    if (!random.chance(0.3) || !check_illegal(kind, *data, random, counts)) {
      check_legal_call(kind, *data, named ? row.row : nullptr, random, counts);
    }
    ASSERT_TRUE(data->intact()) << "bytes outside the outputs were written";
  });
}

}  // namespace
}  // namespace tessera::support
