#include "page_pool.hpp"

namespace tessera::replay {

page_pool::page_pool(std::int64_t pages) : states_(static_cast<std::size_t>(pages)) {
  for (auto page = static_cast<page_number>(pages); page > 0; --page) free_.push_back(page - 1);
}

std::optional<page_number> page_pool::take() {
  if (available() == 0) return std::nullopt;
  page_number page = 0;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else {
    page = kept_.begin()->second;
    kept_.erase(kept_.begin());
    holders_.erase(*state(page).content);
    state(page).content.reset();
    ++given_up_;
  }
  state(page).users = 1;
  return page;
}

void page_pool::share(page_number page) {
  page_state& shared = state(page);
  if (shared.users++ == 0) kept_.erase({shared.left, page});
}

void page_pool::give_back(page_number page) {
  page_state& left = state(page);
  if (--left.users > 0) return;
  if (!left.content) {
    free_.push_back(page);
    return;
  }
  left.left = ++events_;
  kept_.insert({left.left, page});
}

bool page_pool::keep_as(page_number page, prefix_page content) {
  if (!holders_.emplace(content, page).second) return false;
  state(page).content = content;
  return true;
}

std::optional<page_number> page_pool::find(prefix_page content) const {
  const auto found = holders_.find(content);
  return found == holders_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace tessera::replay
