// One line of a trace: its words, and refusals that name file, line, key and value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::replay {

class trace_line {
 public:
  /// The words of a line without its comment: "key=value" and others.
  trace_line(std::string_view text, const std::string& file, std::size_t number);

  bool empty() const noexcept { return words_.empty() && values_.empty(); }
  std::size_t number() const noexcept { return number_; }
  std::string_view text() const noexcept { return text_; }

  /// Word `place` that is not "key=value". A line without it is refused: `what` is missing.
  std::string_view word(std::size_t place, std::string_view what) const;

  /// The number of a key, which must be there, from `least` to `most`.
  std::int64_t whole(std::string_view key, std::int64_t least, std::int64_t most);
  double real(std::string_view key, double least, double most);
  /// The same, or what stands for it where the key is absent.
  std::int64_t whole_or(std::string_view key, std::int64_t otherwise, std::int64_t least,
                        std::int64_t most);
  /// The text of a key; none if it is absent.
  std::optional<std::string_view> text_of(std::string_view key);

  /// Refuses keys that nobody has asked for, and words behind the first `words` ones.
  void end(std::size_t words) const;

  [[noreturn]] void refuse(std::string_view fact) const;

 private:
  struct value {
    std::string_view key, text;
    bool used = false;
  };

  value& needed(std::string_view key);
  [[noreturn]] void refuse_value(const value& found, std::string_view must) const;

  std::string_view text_;
  const std::string* file_;
  std::size_t number_;
  std::vector<std::string_view> words_;
  std::vector<value> values_;
};

}  // namespace tessera::replay
