// What the rows of a family must meet, said once each.
#pragma once

#include <string_view>

namespace tessera {

/// A condition that legal rows meet. The compiler prints the name of the constant, the generator
/// the sentence. `broken_rule(config)` of a family (families/<family>/rules.hpp) is the first one
/// that a row breaks, or null: the generator drops rows by it, and an assertion in the launcher
/// shows rule and row.
struct row_rule {
  std::string_view sentence;
};

/// The `Answer` of a rules.hpp where nobody asks which rule is broken: compilers fold it where a
/// rule is named, so that a library keeps no sentences that nobody reads. Rules are therefore
/// returned one by one, not chosen between.
class any_broken_rule {
 public:
  constexpr any_broken_rule(const row_rule* rule) noexcept : is_one_(rule != nullptr) {}  // NOLINT
  constexpr explicit operator bool() const noexcept { return is_one_; }

 private:
  bool is_one_;
};

/// True for rows that break no rule.
template <class Config>
constexpr bool is_legal(const Config& config) noexcept {
  return !broken_rule<any_broken_rule>(config);
}

/// The same for rows of a table.
template <class Config>
constexpr bool is_legal_in_table(const Config& config) noexcept {
  return !broken_table_rule<any_broken_rule>(config);
}

}  // namespace tessera
