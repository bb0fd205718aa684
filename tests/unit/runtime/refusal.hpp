// A call that must be refused: what is bent in a legal one, and the sentence that says so.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "attention_call.hpp"

namespace tessera::testing {

struct refusal {
  std::string name;
  std::function<void(attention_call&)> bend;
  std::string sentence;
};

inline void PrintTo(const refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

inline std::string name_of_test(const ::testing::TestParamInfo<refusal>& info) {
  return info.param.name;
}

/// Instantiated wherever refusals are listed; its one test stands in lower_refusals.cpp.
class Refusal : public ::testing::TestWithParam<refusal> {};

}  // namespace tessera::testing
