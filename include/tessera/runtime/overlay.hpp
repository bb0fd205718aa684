// Overlays: rules that name a row for the problems they match, for a scope. They are asked after
// what a call names itself and before everything that was measured or predicted.
//
//   const auto rules = tessera::parse_overlay("flash_attention: type=bf16 q_len=1..64 =>
//   *.decode.*");
//   {
//     tessera::overlay_scope scope(*rules);   // this thread, until the end of the block
//     model.forward();
//   }
//   tessera::flash_attention(args, options, {.overlays = &*rules});   // one call, on any thread
//
// Text form, one rule a line or after a semicolon; `#` starts a comment:
//
//   <op>: [<field>=<value> | <field>=<low>..<high>]... => <row or pattern>
//
// TESSERA_OVERLAY puts such rules, or those of a file, over a whole process.
//
// <op> is an operation, a family or `*`. Fields are those of the family's demand: problems whose
// fields all agree match; an end of a range may be missing. In a pattern `*` stands for any text
// and `?` for any character; of several rows that match and can run, the cost model takes one. A
// rule whose rows cannot run the problem refuses the call; written `=>?` it is passed over.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/lookup/record.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// A condition on one field: a word, or a range of whole numbers with both ends in it.
struct field_test {
  std::string field;
  std::string word;  ///< compared where the field is not a number
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  bool is_range = false;  ///< low and high are meant, not the word
};

struct overlay_rule {
  std::string op{};                 ///< operation, family or "*"
  std::vector<field_test> tests{};  ///< all of them hold
  std::string identity{}, size{};   ///< key text that must be equal; empty: any
  std::string row{};                ///< name or pattern
  ineligible_override on_ineligible = ineligible_override::error;
};

/// Rules in the order of their precedence. Immutable, so that any number of threads may use it.
class overlay {
 public:
  explicit overlay(std::vector<overlay_rule> rules);

  std::span<const overlay_rule> rules() const noexcept { return *rules_; }
  /// Tells overlays apart; copies share it.
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::shared_ptr<const std::vector<overlay_rule>> rules_;
  std::uint64_t number_;
};

/// Reads the text form. Refuses what is not a rule, unknown operations, and fields that the
/// operation's family does not have, with the line and the word.
result<overlay> parse_overlay(std::string_view text);

/// Reads a file of rules, at most 1 MiB.
result<overlay> read_overlay(const std::string& path);

/// Puts rules over every call of the process, behind those of calls and threads, in place of
/// TESSERA_OVERLAY; null: none. They must outlive every call. Returns the rules before.
const overlay* set_process_overlay(const overlay* rules) noexcept;

/// The results of a tuning session as rules, so that they hold for a scope before they are stored.
overlay overlay_of(std::span<const lookup_record> records);

/// Puts an overlay over the calls of this thread while it lives. Scopes nest, the innermost is
/// asked first; they end in the reverse order of their beginning, also when an exception unwinds
/// them. Neither allocates nor locks.
class overlay_scope {
 public:
  explicit overlay_scope(const overlay& rules) noexcept;
  ~overlay_scope();
  overlay_scope(const overlay_scope&) = delete;
  overlay_scope& operator=(const overlay_scope&) = delete;

  std::span<const overlay_rule> rules() const noexcept { return rules_; }
  const overlay_scope* outer() const noexcept { return outer_; }
  /// Stands for this scope and all around it.
  std::uint64_t number() const noexcept { return number_; }

  /// The innermost scope of this thread, or null.
  static const overlay_scope* innermost() noexcept;

 private:
  std::span<const overlay_rule> rules_;
  const overlay_scope* outer_;
  std::uint64_t number_;
};

/// True if `name` has the form of `pattern`.
constexpr bool matches_pattern(std::string_view pattern, std::string_view name) noexcept {
  std::size_t at = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  std::size_t in = 0;
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = in;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[in])) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++resume;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

/// True if the text asks for a form rather than for one name.
constexpr bool is_pattern(std::string_view text) noexcept {
  return text.find_first_of("*?") != std::string_view::npos;
}

}  // namespace tessera
