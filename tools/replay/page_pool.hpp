// Which pages of a pool are whose. Pages have as many users as sequences read them. A page that
// holds a full page of a common prefix is found by others, and stays when its last user leaves,
// until nothing else is free: the one that was used least recently goes first.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tessera::replay {

using page_number = std::int32_t;

/// Page `index` of the tokens of a prefix.
struct prefix_page {
  std::size_t prefix = 0;
  std::int64_t index = 0;

  friend auto operator<=>(const prefix_page&, const prefix_page&) = default;
};

class page_pool {
 public:
  explicit page_pool(std::int64_t pages);

  /// A page for one user and whatever it writes; none if every page has a user.
  std::optional<page_number> take();
  /// One user more, or less. A page without users is free, or kept for what it holds.
  void share(page_number page);
  void give_back(page_number page);

  /// Says what a page with a user holds, now that it is written and stays as it is. False if
  /// another page is known to hold the same.
  bool keep_as(page_number page, prefix_page content);
  /// The page that holds it; none.
  std::optional<page_number> find(prefix_page content) const;

  std::int64_t pages() const noexcept { return static_cast<std::int64_t>(states_.size()); }
  std::int64_t free() const noexcept { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t kept() const noexcept { return static_cast<std::int64_t>(kept_.size()); }
  std::int64_t used() const noexcept { return pages() - available(); }
  /// Pages that `take` could give.
  std::int64_t available() const noexcept { return free() + kept(); }
  std::int64_t users_of(page_number page) const { return state(page).users; }
  /// Pages of prefixes that were given up for something else, so far.
  std::int64_t given_up() const noexcept { return given_up_; }

 private:
  struct page_state {
    std::int64_t users = 0;
    std::int64_t left = 0;  ///< when its last user left; counts events
    std::optional<prefix_page> content{};
  };

  page_state& state(page_number page) { return states_[static_cast<std::size_t>(page)]; }
  const page_state& state(page_number page) const {
    return states_[static_cast<std::size_t>(page)];
  }

  std::vector<page_state> states_;
  std::vector<page_number> free_;                        ///< the last one is taken first
  std::set<std::pair<std::int64_t, page_number>> kept_;  ///< by the time their last user left
  std::map<prefix_page, page_number> holders_;
  std::int64_t events_ = 0;
  std::int64_t given_up_ = 0;
};

}  // namespace tessera::replay
