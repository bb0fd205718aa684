// Traces: the text of a line. What a process records is tested with the operations (unit/api).
#include <string>

#include <gtest/gtest.h>

#include <tessera/runtime/record.hpp>

namespace tessera::testing {
namespace {

TEST(Trace, LinesHaveAProblemAndACount) {
  const auto read = [](std::string_view line) { return *parse_trace_line(line); };
  EXPECT_EQ(read("attention q=[1]f32 k=[1]").problem, "attention q=[1]f32 k=[1]");
  EXPECT_EQ(read("attention q=[1]f32 k=[1]").count, 1);
  EXPECT_EQ(read("  attention q=[1]f32 # count=812 \r").problem, "attention q=[1]f32");
  EXPECT_EQ(read("attention q=[1]f32 # count=812").count, 812);
  EXPECT_TRUE(read("# a comment # count=x").problem.empty());
  EXPECT_TRUE(read("").problem.empty());
  EXPECT_TRUE(read(" \t").problem.empty());
  const trace_line line{"attention q=[1]f32", 9'000'000'000};
  EXPECT_EQ(line_of(line), "attention q=[1]f32 # count=9000000000");
  EXPECT_EQ(read(line_of(line)).count, line.count);
  EXPECT_EQ(read(line_of(line)).problem, line.problem);
}

TEST(Trace, OtherCountsAreRefused) {
  for (const char* mark : {"# count=0", "# count=-3", "# count=", "# count=7x", "# counts=7",
                           "# count=99999999999999999999", "#count=7"}) {
    const result<trace_line> read = parse_trace_line(std::string("attention q=[1]f32 ") + mark);
    EXPECT_EQ(read.code(), status_code::malformed) << mark;
    EXPECT_EQ(read.message(), "trace: '" + std::string(mark) +
                                  "' after the problem, must be '# count=N' with N a whole number "
                                  "from 1");
  }
}

}  // namespace
}  // namespace tessera::testing
