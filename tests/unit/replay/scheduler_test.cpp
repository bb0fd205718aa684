// The scheduler's promises, on traces by hand and at random. A model of the pool that knows only
// who wrote what where says whether a step may be run.
#include "tools/replay/scheduler.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random.hpp"
#include "traces.hpp"

namespace {

using namespace tessera;
using namespace tessera::replay;
using tessera::testing::trace_of;

/// Who a token is: one of a prefix, or of a request.
using token = std::pair<std::int64_t, std::int64_t>;

token token_at(const trace& all, std::size_t number, std::int64_t position) {
  const request& asked = all.requests[number];
  const bool common = asked.shared && position < asked.shared->tokens;
  const auto owner = common ? -1 - static_cast<std::int64_t>(asked.shared->prefix)
                            : static_cast<std::int64_t>(number);
  return {owner, position};
}

/// What slots hold, as the steps write them.
class written_pool {
 public:
  explicit written_pool(const trace& all) : all_(all) {}

  void run(const step& made) {
    const std::int64_t size = all_.limits.page_size;
    std::map<page_number, std::size_t> writers;
    std::map<page_number, int> readers;
    std::int64_t tokens = 0, generating = 0;
    bool prompts_began = false;
    for (const token_range& range : made.ranges) {
      ASSERT_GE(range.tokens, 1);
      EXPECT_TRUE(!range.generates || range.tokens == 1);
      EXPECT_FALSE(range.generates && prompts_began) << "those that generate come first";
      prompts_began = prompts_began || !range.generates;
      generating += range.generates ? 1 : 0;
      tokens += range.tokens;
      ASSERT_LE(all_.limits.pages_of(range.keys()), static_cast<std::int64_t>(range.pages.size()));
      EXPECT_EQ(std::set<page_number>(range.pages.begin(), range.pages.end()).size(),
                range.pages.size());
      for (std::int64_t at = range.begin; at < range.keys(); ++at) {
        const page_number page = range.pages[static_cast<std::size_t>(at / size)];
        ASSERT_TRUE(page >= 0 && page < all_.limits.pages);
        const auto [writer, is_first] = writers.emplace(page, range.request);
        EXPECT_TRUE(is_first || writer->second == range.request) << "page " << page;
      }
      for (const page_number page : range.pages) ++readers[page];
    }
    for (const auto& [page, writer] : writers) {
      EXPECT_EQ(readers[page], 1) << "page " << page << " is written and in use twice";
    }
    look_at_groups(made);
    write(made);
    EXPECT_EQ(tokens, made.tokens);
    EXPECT_LE(tokens, all_.limits.tokens);
    EXPECT_EQ(generating, made.generating);
    EXPECT_LE(static_cast<std::int64_t>(made.ranges.size()), all_.limits.sequences);
  }

 private:
  /// Groups follow each other; those that share pages have the same ones, before all tokens of the
  /// step; no two groups of a half begin with the same page.
  void look_at_groups(const step& made) {
    std::size_t begin = 0;
    std::set<std::pair<bool, page_number>> seen;
    for (const page_group& group : made.groups) {
      ASSERT_LT(begin, group.end);
      ASSERT_LE(group.end, made.ranges.size());
      const token_range& first = made.ranges[begin];
      for (std::size_t n = begin; n < group.end && group.pages > 0; ++n) {
        const token_range& range = made.ranges[n];
        EXPECT_EQ(range.generates, first.generates);
        EXPECT_LE(group.pages * all_.limits.page_size, range.begin);
        for (std::int64_t m = 0; m < group.pages; ++m) {
          const auto at = static_cast<std::size_t>(m);
          EXPECT_EQ(range.pages[at], first.pages[at]) << "sequence " << n << ", page " << m;
        }
      }
      if (group.pages > 0) {
        EXPECT_TRUE(seen.emplace(first.generates, first.pages.front()).second);
        EXPECT_GE(group.end - begin, 2u);
      }
      begin = group.end;
    }
    EXPECT_TRUE(made.groups.empty() || made.groups.back().pages > 0);
  }

  /// All writes, then every key of every sequence is where its table says.
  void write(const step& made) {
    const std::int64_t size = all_.limits.page_size;
    const auto slot = [&](const token_range& range, std::int64_t at) {
      return std::pair(range.pages[static_cast<std::size_t>(at / size)], at % size);
    };
    for (const token_range& range : made.ranges) {
      for (std::int64_t at = range.begin; at < range.keys(); ++at) {
        slots_[slot(range, at)] = token_at(all_, range.request, at);
      }
    }
    for (const token_range& range : made.ranges) {
      for (std::int64_t at = 0; at < range.keys(); ++at) {
        EXPECT_EQ(slots_[slot(range, at)], token_at(all_, range.request, at))
            << "request " << range.request << ", key " << at;
      }
    }
  }

  const trace& all_;
  std::map<std::pair<page_number, std::int64_t>, token> slots_;
};

/// Runs a trace to its end and checks every step.
schedule_totals replayed(const trace& all) {
  scheduler scheduled(all);
  written_pool pool(all);
  std::int64_t steps = 0, clock = -1, computed = 0;
  while (const auto made = scheduled.next()) {
    EXPECT_GT(made->clock, clock);
    clock = made->clock;
    EXPECT_GT(made->tokens, 0) << "a step that does nothing";
    for (const token_range& range : made->ranges) {
      EXPECT_LE(all.requests[range.request].arrival, static_cast<double>(clock));
    }
    pool.run(*made);
    EXPECT_EQ(scheduled.pool().used() + scheduled.pool().available(), all.limits.pages);
    scheduled.complete(*made);
    computed += made->tokens;
    if (::testing::Test::HasFailure() || ++steps > 100'000) {
      ADD_FAILURE() << "stopped after step " << steps;
      break;
    }
  }
  const schedule_totals& totals = scheduled.totals();
  EXPECT_EQ(scheduled.pool().used(), 0) << "pages that nobody gave back";
  EXPECT_EQ(totals.finished, static_cast<std::int64_t>(all.requests.size()));
  std::int64_t outputs = 0, least = 0;
  for (std::size_t n = 0; n < all.requests.size(); ++n) {
    EXPECT_EQ(scheduled.generated_by(n), all.requests[n].output) << n;
    outputs += all.requests[n].output;
    least += all.requests[n].most_keys();
  }
  EXPECT_EQ(totals.generated, outputs);
  EXPECT_EQ(computed, totals.prompt_tokens + totals.decoded);
  EXPECT_GE(computed + totals.shared_tokens, least);
  return totals;
}

TEST(scheduler, long_prompts_are_read_in_chunks_beside_those_who_generate) {
  const trace all =
      trace_of("request arrival=0 prompt=4 output=6\nrequest arrival=1 prompt=40 output=2\n");
  scheduler scheduled(all);
  std::vector<std::int64_t> chunks;
  while (const auto made = scheduled.next()) {
    for (const token_range& range : made->ranges) {
      if (range.request == 1) chunks.push_back(range.tokens);
    }
    scheduled.complete(*made);
  }
  EXPECT_EQ(chunks, (std::vector<std::int64_t>{15, 15, 10, 1}))
      << "16 tokens a step, of which one generates";
}

TEST(scheduler, full_pages_of_a_prefix_are_shared_once_they_are_written) {
  const trace all = trace_of(
      "request arrival=0 prompt=12 output=3 prefix=a:10\n"
      "request arrival=1 prompt=14 output=3 prefix=a:10\n"
      "request arrival=50 prompt=10 output=1 prefix=a:10\n");
  const schedule_totals totals = replayed(all);
  // Two full pages of 4 of the 10 common tokens; the third request comes when nobody has them.
  EXPECT_EQ(totals.shared_pages, 4);
  EXPECT_EQ(totals.shared_tokens, 16);
  EXPECT_EQ(totals.prompt_tokens, 12 + 6 + 2);
}

TEST(scheduler, those_who_share_pages_are_neighbours) {
  const trace all = trace_of(
      "request arrival=0 prompt=9 output=9 prefix=a:8\n"
      "request arrival=0 prompt=3 output=9\n"
      "request arrival=2 prompt=10 output=9 prefix=a:8\n"
      "request arrival=2 prompt=12 output=9 prefix=a:8\n");
  scheduler scheduled(all);
  std::vector<std::size_t> order;
  std::vector<page_group> groups;
  while (const auto made = scheduled.next()) {
    if (made->generating == 4) {
      order.clear();
      for (const token_range& range : made->ranges) order.push_back(range.request);
      groups = made->groups;
    }
    scheduled.complete(*made);
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 2, 3, 1}));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].end, 3u);
  EXPECT_EQ(groups[0].pages, 2) << "the second page of 4 holds tokens 4 to 7";
}

TEST(scheduler, a_prompt_that_is_all_prefix_computes_its_last_token) {
  const trace all = trace_of(
      "request arrival=0 prompt=8 output=1 prefix=a:8\n"
      "request arrival=5 prompt=8 output=1 prefix=a:8\n");
  const schedule_totals totals = replayed(all);
  EXPECT_EQ(totals.shared_pages, 1);
  EXPECT_EQ(totals.prompt_tokens, 8 + 4);
}

TEST(scheduler, who_came_last_is_evicted_and_computes_again) {
  const trace all =
      trace_of("request arrival=0 prompt=8 output=20\nrequest arrival=0 prompt=8 output=20\n",
               "page_size=4 pages=8");
  const schedule_totals totals = replayed(all);
  EXPECT_GE(totals.evictions, 1);
  EXPECT_GT(totals.again, 0);
}

TEST(scheduler, a_request_as_large_as_the_pool_is_served_behind_others) {
  const trace all = trace_of(
      "request arrival=0 prompt=6 output=9\nrequest arrival=0 prompt=60 output=5 prefix=a:20\n"
      "request arrival=1 prompt=20 output=9 prefix=a:20\n");
  replayed(all);
}

TEST(scheduler, keeps_its_promises_on_random_traces) {
  std::int64_t evictions = 0, shared = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    support::random_source random(seed);
    const std::int64_t page_size = random.pick({1, 2, 3, 4, 8, 16});
    const std::int64_t longest = random.between(4, 60);
    const std::int64_t pages = (2 * longest + page_size - 1) / page_size + random.between(0, 8);
    const std::int64_t sequences = random.between(1, 8);
    std::string lines;
    for (std::int64_t n = random.between(1, 24); n > 0; --n) {
      const std::int64_t prompt = random.between(1, longest);
      lines += "request arrival=" + std::to_string(random.between(0, 40)) +
               " prompt=" + std::to_string(prompt) +
               " output=" + std::to_string(random.between(1, longest));
      if (random.chance(0.6)) {
        lines += random.chance(0.5) ? " prefix=a:" : " prefix=b:";
        lines += std::to_string(random.between(1, prompt));
      }
      lines += "\n";
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + lines);
    const schedule_totals totals = replayed(trace_of(
        lines, "page_size=" + std::to_string(page_size) + " pages=" + std::to_string(pages),
        "tokens=" + std::to_string(sequences + random.between(0, 20)) +
            " sequences=" + std::to_string(sequences)));
    evictions += totals.evictions;
    shared += totals.shared_pages;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(evictions, 100) << "the traces try too little";
  EXPECT_GT(shared, 100);
}

}  // namespace
