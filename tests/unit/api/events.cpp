// Events: what a sink hears, from the call or from the process.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/tessera.hpp>

#include "small_call.hpp"

namespace tessera::testing {
namespace {

struct heard {
  std::vector<std::pair<event_kind, std::string>> all;
  event_sink sink{&deliver, this};

  static void deliver(void* receiver, const event& what) noexcept {
    static_cast<heard*>(receiver)->all.emplace_back(what.kind, std::string(what.message));
  }
  std::ptrdiff_t count(event_kind kind) const {
    return std::count_if(all.begin(), all.end(),
                         [&](const auto& entry) { return entry.first == kind; });
  }
};

TEST(Events, AChoiceIsToldOnceAndAgainWhenForgotten) {
  forget_selections();
  heard listener;
  small_call call(9, 9, 2, 64);
  const context context{.threads = 1, .events = &listener.sink};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(flash_attention(call.args(), {}, context));
  EXPECT_EQ(listener.count(event_kind::heuristic), 1);
  forget_selections();
  ASSERT_TRUE(flash_attention(call.args(), {}, context));
  EXPECT_EQ(listener.count(event_kind::heuristic), 2);
}

TEST(Events, AFallbackNamesTheRejectedRowsAndTheLineToAdd) {
  forget_selections();
  heard listener;
  small_call call(9, 9, 2, 56);
  ASSERT_TRUE(flash_attention(call.args(), {.logits_soft_cap = 5.0},
                              {.threads = 1, .events = &listener.sink}));
  ASSERT_EQ(listener.count(event_kind::fallback), 1);
  const auto told = std::find_if(listener.all.begin(), listener.all.end(), [](const auto& entry) {
    return entry.first == event_kind::fallback;
  });
  const auto all = explain(problem_of(call.args(), {.logits_soft_cap = 5.0}), {.threads = 1});
  ASSERT_TRUE(all) << all.message();
  EXPECT_NE(all->better_row.find(".f32.d56."), std::string::npos) << all->better_row;
  EXPECT_NE(told->second.find(all->better_row), std::string::npos) << told->second;
  for (const row_rejection& rejection : all->rejected) {
    EXPECT_NE(told->second.find(std::string(rejection.row) + ": " + rejection.reason),
              std::string::npos);
  }
}

TEST(Events, OverridesAndErrorsAreTold) {
  heard listener;
  small_call call(9, 9, 2, 64);
  const auto all = explain(problem_of(call.args()));
  ASSERT_TRUE(all) << all.message();
  const std::string name = all->row;
  ASSERT_TRUE(flash_attention(call.args(), {}, {.row = name, .events = &listener.sink}));
  EXPECT_EQ(listener.count(event_kind::override), 1);
  const status refused =
      flash_attention(call.args(), {}, {.row = "missing", .events = &listener.sink});
  ASSERT_EQ(listener.count(event_kind::error), 1);
  EXPECT_EQ(listener.all.back().second, refused.message());
}

TEST(Events, PassedOverRowsAreTold) {
  heard listener;
  small_call call(9, 9, 2, 64);
  std::string unfit;
  for (const instance& row : attention_registry()) {
    if (row.config_as<attention_config>().type == dtype::bf16) unfit = row.name;
  }
  const context context{
      .row = unfit,
      .events = &listener.sink,
      .policy = selection_policy{.on_ineligible = ineligible_override::fall_through}};
  ASSERT_TRUE(flash_attention(call.args(), {}, context));
  const auto all = explain(problem_of(call.args()));
  ASSERT_TRUE(all) << all.message();
  const auto rejected = std::find_if(all->rejected.begin(), all->rejected.end(),
                                     [&](const auto& entry) { return entry.row == unfit; });
  ASSERT_NE(rejected, all->rejected.end());
  ASSERT_GE(listener.count(event_kind::warning), 1);
  const std::pair expected{event_kind::warning,
                           unfit + " is named and passed over: " + rejected->reason};
  EXPECT_EQ(std::count(listener.all.begin(), listener.all.end(), expected), 1);
}

TEST(Events, TheSinkOfTheProcessHearsCallsWithoutTheirOwn) {
  forget_selections();
  heard process;
  heard own;
  const event_sink* const before = set_event_sink(&process.sink);
  EXPECT_EQ(installed_event_sink(), &process.sink);
  small_call call(11, 9, 2, 64);
  EXPECT_TRUE(flash_attention(call.args(), {}, {.threads = 1, .events = &own.sink}));
  EXPECT_TRUE(flash_attention(call.args(), {}, {.threads = 2}));
  EXPECT_EQ(set_event_sink(before), &process.sink);
  EXPECT_EQ(own.count(event_kind::heuristic), 1);
  EXPECT_EQ(process.count(event_kind::heuristic), 1);
  forget_selections();
  EXPECT_TRUE(flash_attention(call.args(), {}, {.threads = 2}));
  EXPECT_EQ(process.count(event_kind::heuristic), 1);
}

}  // namespace
}  // namespace tessera::testing
