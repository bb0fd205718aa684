// Who computes which tokens in which step, and in which pages: continuous batching as serving
// engines do it. Pure bookkeeping; nothing is computed here.
//
// * A request waits from its arrival until the pool has the pages of its prompt and a place in the
//   batch is free; requests are admitted in their order.
// * Each step gives a token to every sequence that generates, then what is left of its tokens to
//   prompts, in the order of admission: a long prompt is read in chunks.
// * A sequence takes a page whenever its next token has no place. Where there is none, the sequence
//   admitted last is evicted: it gives all its pages back, waits before all others, and computes
//   its tokens again when it returns.
// * Full pages of a common prefix are shared with those that come later, once they are written.
//   Those that share them are neighbours in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "page_pool.hpp"
#include "shared_pages.hpp"
#include "trace.hpp"

namespace tessera::replay {

/// Tokens that a sequence computes in a step, keys `begin` to `begin + tokens - 1`.
struct token_range {
  std::size_t request = 0;
  std::int64_t begin = 0;
  std::int64_t tokens = 0;
  bool generates = false;  ///< its newest token; else tokens of the prompt, or computed again
  std::vector<page_number> pages{};

  std::int64_t keys() const noexcept { return begin + tokens; }
};

struct step {
  std::int64_t clock = 0;
  std::vector<token_range> ranges{};
  std::int64_t tokens = 0;      ///< of all ranges
  std::int64_t generating = 0;  ///< ranges that generate, which come first
  std::vector<page_group> groups{};
  std::int64_t pages_used = 0, pages_kept = 0;
};

/// Sums over the steps so far.
struct schedule_totals {
  std::int64_t finished = 0;       ///< requests
  std::int64_t prompt_tokens = 0;  ///< computed in chunks, those again included
  std::int64_t generated = 0;      ///< tokens, the first of each output included
  std::int64_t decoded = 0;        ///< tokens computed one by one
  std::int64_t again = 0;          ///< tokens of `prompt_tokens` computed before
  std::int64_t shared_pages = 0;   ///< taken from others
  std::int64_t shared_tokens = 0;  ///< not computed for that
  std::int64_t evictions = 0;      ///< of sequences
};

class scheduler {
 public:
  /// `all` outlives it. Each of its requests fits the pool (parse_trace sees to that).
  explicit scheduler(const trace& all);

  /// The next step that has anything to do; none when every request is finished. The one before is
  /// complete.
  std::optional<step> next();
  /// What `next` gave has been computed.
  void complete(const step& done);

  const schedule_totals& totals() const noexcept { return totals_; }
  const page_pool& pool() const noexcept { return pool_; }
  /// Tokens that a request has generated.
  std::int64_t generated_by(std::size_t request) const { return states_[request].generated; }

 private:
  /// What is known of a request that has arrived.
  struct sequence {
    std::vector<page_number> pages;
    std::int64_t computed = 0;   ///< keys in its pages
    std::int64_t generated = 0;  ///< tokens
    std::int64_t furthest = 0;   ///< most keys that it ever had
  };

  const request& asked(std::size_t number) const { return trace_.requests[number]; }
  /// Tokens whose keys it needs before it generates the next one.
  std::int64_t known(std::size_t number) const {
    return asked(number).prompt + states_[number].generated;
  }
  bool generates(std::size_t number) const {
    return states_[number].generated > 0 && states_[number].computed == known(number) - 1;
  }

  void arrive();
  void schedule_generating(step& step);
  void schedule_prompts(step& step);
  bool has_room_for_next(std::size_t number);
  void evict_last();
  bool admit(std::size_t number);
  void share_prefix(std::size_t number);
  void keep_prefix(std::size_t number, std::int64_t begin);
  void give_pages_back(sequence& state);
  void add_range(step& step, std::size_t number, std::int64_t tokens, bool generates) const;

  const trace& trace_;
  page_pool pool_;
  std::vector<sequence> states_;      ///< of all requests
  std::vector<std::size_t> running_;  ///< in the order of admission
  std::deque<std::size_t> waiting_;
  std::size_t arrived_ = 0;  ///< requests
  std::int64_t clock_ = 0;
  schedule_totals totals_;
};

}  // namespace tessera::replay
