// Writes markup that is well-formed by construction: an element closes with its scope, and every
// text and attribute is escaped. The page is HTML that an XML reader accepts too.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::tool::report {

/// `text` with the five characters escaped that markup gives a meaning; what is not UTF-8, and
/// control characters other than tab and newline, become U+FFFD.
std::string escaped(std::string_view text);

class markup {
 public:
  using attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  /// An open element; closes it when it ends.
  class scope {
   public:
    scope(markup& target, std::string_view name) : target_(&target), name_(name) {}
    ~scope();
    scope(scope&& other) noexcept
        : target_(std::exchange(other.target_, nullptr)), name_(std::move(other.name_)) {}
    scope& operator=(scope&&) = delete;

   private:
    markup* target_;
    std::string name_;
  };

  /// Opens an element that the returned scope closes.
  [[nodiscard]] scope element(std::string_view name, attributes with = {});

  /// An element that holds nothing but text.
  void leaf(std::string_view name, attributes with, std::string_view text);
  void leaf(std::string_view name, std::string_view text) { leaf(name, {}, text); }

  /// An element that holds nothing.
  void empty(std::string_view name, attributes with = {});

  void text(std::string_view plain);

  /// A name made of parts joined by '.', '/' or ',': the same text, with places to break a line.
  void breakable(std::string_view name);

  /// Markup, style or script that is part of this program. Never what was read from a file.
  void raw(std::string_view own);

  const std::string& str() const noexcept { return text_; }

 private:
  void open(std::string_view name, attributes with);

  std::string text_;
};

}  // namespace tessera::tool::report
