#include "scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::replay {

scheduler::scheduler(const trace& all)
    : trace_(all), pool_(all.limits.pages), states_(all.requests.size()) {}

std::optional<step> scheduler::next() {
  if (running_.empty() && waiting_.empty()) {
    if (arrived_ == trace_.requests.size()) return std::nullopt;
    // Nothing to do until then: such steps do not count.
    clock_ = std::max(clock_, static_cast<std::int64_t>(std::ceil(asked(arrived_).arrival)));
  }
  arrive();
  step step{.clock = clock_++};
  const std::int64_t evicted = totals_.evictions;
  schedule_generating(step);
  schedule_prompts(step);
  // Who was evicted in this step would take back what it gave.
  while (totals_.evictions == evicted && step.tokens < trace_.limits.tokens && !waiting_.empty() &&
         static_cast<std::int64_t>(running_.size()) < trace_.limits.sequences) {
    const std::size_t number = waiting_.front();
    if (!admit(number)) break;
    waiting_.pop_front();
    running_.push_back(number);
    const std::int64_t left = known(number) - states_[number].computed;
    add_range(step, number, std::min(left, trace_.limits.tokens - step.tokens), false);
  }
  const auto generating = static_cast<std::size_t>(step.generating);
  sort_by_first_page(step.ranges, generating);
  step.groups = page_groups_of(step.ranges, generating, trace_.limits.page_size);
  step.pages_used = pool_.used();
  step.pages_kept = pool_.kept();
  return step;
}

void scheduler::arrive() {
  while (arrived_ < trace_.requests.size() &&
         asked(arrived_).arrival <= static_cast<double>(clock_)) {
    waiting_.push_back(arrived_++);
  }
}

/// Who was admitted first is asked first, so that nobody evicts a sequence that has its token.
void scheduler::schedule_generating(step& step) {
  for (std::size_t place = 0; place < running_.size(); ++place) {
    const std::size_t number = running_[place];
    if (!generates(number)) continue;
    while (place < running_.size() && !has_room_for_next(number)) evict_last();
    if (place < running_.size()) add_range(step, number, 1, true);
  }
}

void scheduler::schedule_prompts(step& step) {
  for (const std::size_t number : running_) {
    const std::int64_t left = known(number) - states_[number].computed;
    if (generates(number) || step.tokens == trace_.limits.tokens) continue;
    add_range(step, number, std::min(left, trace_.limits.tokens - step.tokens), false);
  }
}

bool scheduler::has_room_for_next(std::size_t number) {
  sequence& state = states_[number];
  const auto held = static_cast<std::int64_t>(state.pages.size());
  if (state.computed < held * trace_.limits.page_size) return true;
  const std::optional<page_number> page = pool_.take();
  if (page) state.pages.push_back(*page);
  return page.has_value();
}

void scheduler::evict_last() {
  const std::size_t number = running_.back();
  running_.pop_back();
  give_pages_back(states_[number]);
  waiting_.push_front(number);
  ++totals_.evictions;
}

/// The last page goes first, so that beginnings of prefixes, which others need, stay longest.
void scheduler::give_pages_back(sequence& state) {
  for (auto page = state.pages.rbegin(); page != state.pages.rend(); ++page) {
    pool_.give_back(*page);
  }
  state.pages.clear();
  state.computed = 0;
}

bool scheduler::admit(std::size_t number) {
  sequence& state = states_[number];
  share_prefix(number);
  const auto shared = static_cast<std::int64_t>(state.pages.size());
  const std::int64_t missing = trace_.limits.pages_of(known(number)) - shared;
  if (pool_.available() < missing) {
    give_pages_back(state);
    return false;
  }
  for (std::int64_t n = 0; n < missing; ++n) state.pages.push_back(*pool_.take());
  totals_.shared_pages += shared;
  totals_.shared_tokens += shared * trace_.limits.page_size;
  return true;
}

/// Pages of its prefix that others have written. One token at least is left to be computed.
void scheduler::share_prefix(std::size_t number) {
  const std::optional<common_tokens>& common = asked(number).shared;
  if (!common) return;
  sequence& state = states_[number];
  const std::int64_t size = trace_.limits.page_size;
  const std::int64_t pages = std::min(common->tokens, known(number) - 1) / size;
  for (std::int64_t index = 0; index < pages; ++index) {
    const auto page = pool_.find({common->prefix, index});
    if (!page) break;
    pool_.share(*page);
    state.pages.push_back(*page);
    state.computed += size;
  }
}

/// Tells others of the pages of its prefix that are full since it had `begin` keys.
void scheduler::keep_prefix(std::size_t number, std::int64_t begin) {
  const std::optional<common_tokens>& common = asked(number).shared;
  if (!common) return;
  const sequence& state = states_[number];
  const std::int64_t size = trace_.limits.page_size;
  const std::int64_t end = std::min(common->tokens, state.computed) / size;
  for (std::int64_t index = begin / size; index < end; ++index) {
    pool_.keep_as(state.pages[static_cast<std::size_t>(index)], {common->prefix, index});
  }
}

void scheduler::add_range(step& step, std::size_t number, std::int64_t tokens,
                          bool generates) const {
  const sequence& state = states_[number];
  step.ranges.push_back({number, state.computed, tokens, generates, state.pages});
  step.tokens += tokens;
  step.generating += generates ? 1 : 0;
}

void scheduler::complete(const step& done) {
  for (const token_range& range : done.ranges) {
    sequence& state = states_[range.request];
    state.computed = range.keys();
    (range.generates ? totals_.decoded : totals_.prompt_tokens) += range.tokens;
    totals_.again += std::clamp(state.furthest - range.begin, std::int64_t{0}, range.tokens);
    state.furthest = std::max(state.furthest, state.computed);
    keep_prefix(range.request, range.begin);
    if (state.computed < known(range.request)) continue;
    ++state.generated;
    ++totals_.generated;
    if (state.generated < asked(range.request).output) continue;
    give_pages_back(state);
    std::erase(running_, range.request);
    ++totals_.finished;
  }
}

}  // namespace tessera::replay
