// A test that runs calls of one operation: skipped, and says why, where the program has no rows for
// it.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "tests/support/call_run.hpp"

namespace tessera::support {

/// `Param` has a family, `kind`.
template <class Param>
class operation_test : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not_here(kind()); !why.empty()) GTEST_SKIP() << why;
  }
  static const family& kind() { return *operation_test::GetParam().kind; }
};

}  // namespace tessera::support
