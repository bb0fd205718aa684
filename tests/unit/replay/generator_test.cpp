// The generator: the same statement gives the same requests, today and on any machine, and they
// have the distributions that are stated.
#include "tools/replay/generator.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "traces.hpp"

namespace {

using namespace tessera;
using replay::request;
using tessera::testing::trace_of;

const std::string chat =
    "generate requests=200 seed=7\n"
    "arrivals poisson rate=0.25\n"
    "prompt lognormal median=40 sigma=0.5 min=8 max=120\n"
    "output uniform min=4 max=20\n"
    "prefix system count=2 length=12 share=0.5\n";

std::vector<request> requests_of(const std::string& lines) {
  return trace_of(lines, "page_size=4 pages=64").requests;
}

TEST(generator, the_first_requests_of_a_seed_are_these) {
  const std::vector<request> drawn = requests_of(chat);
  ASSERT_EQ(drawn.size(), 200u);
  const auto is = [&](std::size_t n, double arrival, std::int64_t prompt, std::int64_t output,
                      int prefix) {
    EXPECT_NEAR(drawn[n].arrival, arrival, 1e-9) << n;
    EXPECT_EQ(drawn[n].prompt, prompt) << n;
    EXPECT_EQ(drawn[n].output, output) << n;
    EXPECT_EQ(drawn[n].shared ? static_cast<int>(drawn[n].shared->prefix) : -1, prefix) << n;
  };
  is(0, 0, 63, 13, 0);
  is(1, 1.0811787616301736, 40, 7, 1);
  is(2, 5.256297451812204, 120, 14, -1);
  is(3, 7.834842988128047, 44, 18, -1);
  is(4, 8.803641118099106, 54, 14, 0);
}

TEST(generator, another_seed_gives_others_and_another_distribution_leaves_the_rest) {
  const std::vector<request> drawn = requests_of(chat);
  EXPECT_EQ(drawn, requests_of(chat));
  std::string other = chat;
  other.replace(other.find("seed=7"), 6, "seed=8");
  EXPECT_NE(drawn, requests_of(other));
  std::string longer = chat;
  longer.replace(longer.find("max=20"), 6, "max=40");
  const std::vector<request> with_longer = requests_of(longer);
  for (std::size_t n = 0; n < drawn.size(); ++n) {
    EXPECT_EQ(drawn[n].arrival, with_longer[n].arrival);
    EXPECT_EQ(drawn[n].prompt, with_longer[n].prompt);
    EXPECT_EQ(drawn[n].shared, with_longer[n].shared);
  }
}

TEST(generator, requests_have_the_stated_distributions) {
  std::string many = chat;
  many.replace(many.find("requests=200"), 12, "requests=20000");
  const std::vector<request> drawn = requests_of(many);
  std::vector<std::int64_t> prompts;
  double outputs = 0, shared = 0, first = 0;
  for (const request& request : drawn) {
    prompts.push_back(request.prompt - (request.shared ? request.shared->tokens : 0));
    outputs += static_cast<double>(request.output);
    shared += request.shared ? 1 : 0;
    first += request.shared && request.shared->prefix == 0 ? 1 : 0;
  }
  std::ranges::sort(prompts);
  EXPECT_NEAR(drawn.back().arrival / 20000, 4, 0.1) << "a gap of 1 / rate on average";
  EXPECT_NEAR(static_cast<double>(prompts[10000]), 40, 1.5);
  // One sigma above the median.
  EXPECT_NEAR(static_cast<double>(prompts[16827]), 40 * std::exp(0.5), 2);
  EXPECT_GE(prompts.front(), 8);
  EXPECT_LE(prompts.back(), 120);
  EXPECT_NEAR(outputs / 20000, 12, 0.2);
  EXPECT_NEAR(shared / 20000, 0.5, 0.02);
  EXPECT_NEAR(first / shared, 0.5, 0.02);
}

TEST(generator, zipf_halves_and_constants_stay) {
  const std::vector<request> drawn = requests_of(
      "generate requests=20000 seed=3\narrivals uniform rate=2\n"
      "prompt zipf exponent=1 min=5 max=8\noutput constant value=9\n");
  double counts[4] = {};
  for (const request& request : drawn) {
    ASSERT_GE(request.prompt, 5);
    ASSERT_LE(request.prompt, 8);
    counts[request.prompt - 5] += 1;
    EXPECT_EQ(request.output, 9);
  }
  EXPECT_NEAR(counts[1] / counts[0], 1.0 / 2, 0.03);
  EXPECT_NEAR(counts[3] / counts[0], 1.0 / 4, 0.03);
  EXPECT_EQ(drawn[3].arrival, 1.5);
}

}  // namespace
