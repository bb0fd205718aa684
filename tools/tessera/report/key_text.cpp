#include "key_text.hpp"

#include <algorithm>

#include "fields.hpp"

namespace tessera::tool::report {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char divider) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(divider, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

named_values values_of(std::string_view key) {
  named_values pairs;
  for (const std::string_view word : parts_of(key, ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    pairs.emplace_back(word.substr(0, equals), word.substr(std::min(equals + 1, word.size())));
  }
  return pairs;
}

bool by_size::operator()(const std::string& a, const std::string& b) const {
  const std::optional<double> x = number_in(a);
  const std::optional<double> y = number_in(b);
  if (x && y && *x != *y) return *x < *y;
  if (x.has_value() != y.has_value()) return x.has_value();
  return a < b;
}

std::map<std::string, std::string> short_names(const std::vector<std::string>& names) {
  std::map<std::string, std::string> found;
  if (names.empty()) return found;
  std::vector<std::vector<std::string_view>> all;
  std::size_t least = names[0].size() + 1;
  for (const std::string& name : names) {
    all.push_back(parts_of(name, '.'));
    least = std::min(least, all.back().size());
  }
  const auto same = [&](auto part_of) {
    std::size_t count = 0;
    while (count + 1 < least && std::all_of(all.begin(), all.end(), [&](const auto& parts) {
             return part_of(parts, count) == part_of(all[0], count);
           })) {
      ++count;
    }
    return count;
  };
  const std::size_t front = same([](const auto& parts, std::size_t at) { return parts[at]; });
  std::size_t back =
      same([](const auto& parts, std::size_t at) { return parts[parts.size() - 1 - at]; });
  back = std::min(back, least - 1 - front);
  for (std::size_t index = 0; index < names.size(); ++index) {
    std::string text;
    for (std::size_t at = front; at + back < all[index].size(); ++at) {
      if (!text.empty()) text += '.';
      text += all[index][at];
    }
    found[names[index]] = text;
  }
  return found;
}

}  // namespace tessera::tool::report
