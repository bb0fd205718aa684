// Traces: what they say is read, what they say wrongly is refused by file, line, key and value.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include <tessera/spec/status.hpp>

#include "traces.hpp"

namespace {

using namespace tessera;
using tessera::testing::trace_of;

TEST(trace, requests_come_in_the_order_of_their_arrival) {
  const replay::trace read = trace_of(
      "request arrival=3.5 prompt=10 output=2   # a comment\n"
      "\n"
      "  request arrival=1 prompt=8 output=1 prefix=system:5\n"
      "request arrival=3.5 prompt=9 output=2 prefix=system:9");
  EXPECT_EQ(read.limits.page_size, 4);
  EXPECT_EQ(read.limits.pages, 16);
  EXPECT_EQ(read.limits.tokens, 16);
  EXPECT_EQ(read.limits.sequences, 4);
  ASSERT_EQ(read.requests.size(), 3u);
  EXPECT_EQ(read.requests[0].prompt, 8);
  EXPECT_EQ(read.requests[0].shared->tokens, 5);
  EXPECT_EQ(read.requests[1].prompt, 10);
  EXPECT_FALSE(read.requests[1].shared.has_value());
  EXPECT_EQ(read.requests[2].shared->prefix, read.requests[0].shared->prefix);
  EXPECT_EQ(read.prefixes, std::vector<std::string>{"system"});
}

/// The sentence with which a text is refused; empty: it is read.
std::string refusal_of(const std::string& text) {
  try {
    replay::parse_trace(text, "made.txt");
  } catch (const error& refused) {
    EXPECT_EQ(refused.code(), status_code::malformed);
    return refused.what();
  }
  return {};
}

TEST(trace, what_is_wrong_is_named) {
  const std::string head = "pool page_size=4 pages=16\nbatch tokens=16 sequences=4\n";
  const auto refused = [&](const std::string& lines, const std::string& sentence) {
    EXPECT_EQ(refusal_of(head + lines), "made.txt" + sentence);
  };
  refused("", ": has 0 requests: no line \"generate\", and none \"request\"");
  refused("requests n=3",
          ":3: requests: \"requests\" is none of pool, batch, request, generate, arrivals, prompt, "
          "output, prefix");
  refused("PK\x03\x04", ":3: byte 2 of the line is 0x03, must be text");
  refused("   PK\x03\x04", ":3: byte 5 of the line is 0x03, must be text");
  refused("pool page_size=4 pages=16", ":3: pool: is given 2 times, first in line 1");
  refused("request arrival=0 prompt=ten output=1",
          ":3: request: prompt is \"ten\", must be a whole number from 1 to 1048576");
  refused("request arrival=0 prompt=0 output=1",
          ":3: request: prompt is \"0\", must be a whole number from 1 to 1048576");
  refused("request arrival=-1 prompt=1 output=1",
          ":3: request: arrival is \"-1\", must be a number from 0 to 1e+09");
  refused("request arrival=nan prompt=1 output=1",
          ":3: request: arrival is \"nan\", must be a number from 0 to 1e+09");
  refused("request arrival=0 prompt=1", ":3: request: output is missing");
  refused("request arrival=0 prompt=1 output=1 prompt=2", ":3: request: prompt is given 2 times");
  refused("request arrival=0 prompt=1 output=1 colour=red",
          ":3: request: colour=red is no key of this line; read were arrival, prompt, output");
  refused("request soon arrival=0 prompt=1 output=1", ":3: request: \"soon\" means nothing here");
  refused("request arrival=0 prompt=4 output=1 prefix=system",
          ":3: request: prefix is \"system\", must be NAME:TOKENS");
  refused("request arrival=0 prompt=4 output=1 prefix=system:5",
          ":3: tokens is \"5\", must be a whole number from 1 to 4");
  refused("request arrival=0 prompt=60 output=6",
          ": request 1: 60 prompt and 6 output tokens need 17 pages of 4, the pool has 16");
  EXPECT_EQ(refusal_of(head + "request arrival=0 prompt=60 output=5"), "")
      << "16 pages hold 64 keys";
  EXPECT_EQ(refusal_of("batch tokens=4 sequences=2\nrequest arrival=0 prompt=1 output=1"),
            "made.txt: has no line \"pool\"");
  EXPECT_EQ(refusal_of("pool page_size=1048576 pages=4096"),
            "made.txt:1: pool: 4096 pages of 1048576 hold 4294967296 keys, 1073741824 at most");
  EXPECT_EQ(refusal_of("pool page_size=4 pages=1\nbatch tokens=3 sequences=4"),
            "made.txt:2: batch: tokens is \"3\", must be a whole number from 4 to 1048576");
}

TEST(trace, statements_of_generators_are_checked) {
  const std::string head =
      "pool page_size=4 pages=64\nbatch tokens=16 sequences=4\ngenerate requests=4 seed=1\n";
  const auto refused = [&](const std::string& lines, const std::string& sentence) {
    EXPECT_EQ(refusal_of(head + lines), "made.txt" + sentence);
  };
  refused("", ": has no line \"arrivals\"");
  refused("arrivals often rate=1", ":4: arrivals: \"often\" is none of poisson, uniform, at_once");
  refused("arrivals poisson", ":4: arrivals: rate is missing");
  refused("arrivals poisson rate=0",
          ":4: arrivals: rate is \"0\", must be a number from 1e-06 to 1e+06");
  refused("arrivals at_once rate=2", ":4: arrivals: rate=2 is no key of this line");
  refused("prompt", ":4: prompt: the distribution is missing");
  refused("prompt normal mean=3",
          ":4: prompt: \"normal\" is none of constant, uniform, lognormal, zipf");
  refused("prompt uniform min=9 max=3",
          ":4: prompt: max is \"3\", must be a whole number from 9 to 1048576");
  refused("output lognormal median=20 sigma=wide min=1 max=64",
          ":4: output: sigma is \"wide\", must be a number from 0 to 10");
  refused("prefix a length=4 share=0.7\nprefix b length=4 share=0.5",
          ":5: prefix: share: the prefixes have 1.2 of the requests together, 1 at most");
  refused("prefix a length=4 share=0.2\nprefix a length=8 share=0.2",
          ":5: prefix: a is the name of 2 prefixes");
}

TEST(trace, those_of_the_repository_are_sound) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SHAPES_DIR "/traces")) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    EXPECT_FALSE(replay::parse_trace(text, entry.path().string()).requests.empty());
    ++count;
  }
  EXPECT_GE(count, 3u);
}

}  // namespace
