// libFuzzer target: any text through the reader of problems. What is read is written as a text that
// reads as the same; what is not is refused with a sentence.
//   fuzz_problem_text -max_total_time=60 tests/fuzz/corpus/problem_text
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/spec/flash_attention/problem_text.hpp>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto fail = [](const char* what, const std::string& text) {
    std::fprintf(stderr, "%s: %s\n", what, text.c_str());
    std::abort();
  };
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto problem = tessera::parse_problem(text);
  if (!problem) {
    if (problem.message().empty()) fail("refused without a word", text);
    return 0;
  }
  // Texts are compared, not problems: a scale that is NaN differs from itself.
  const std::string written = tessera::to_text(*problem);
  const auto again = tessera::parse_problem(written);
  if (!again) fail("written, but not read", written + " (" + again.message() + ")");
  if (tessera::to_text(*again) != written) fail("changed", written);
  return 0;
}
