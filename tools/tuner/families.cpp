#include "families.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace tessera::tuner {

std::span<const tunable_family* const> tunable_families() {
  static const std::array all{&tunable_attention(), &tunable_mean_pooling()};
  return all;
}

const tunable_family* family_of_op(std::string_view op) {
  for (const tunable_family* family : tunable_families()) {
    const auto ops = family->ops();
    if (std::find(ops.begin(), ops.end(), op) != ops.end()) return family;
  }
  return nullptr;
}

result<std::unique_ptr<tunable_problem>> open_problem(std::string_view text,
                                                      const conditions& where) {
  const std::size_t begin = text.find_first_not_of(" \t");
  text.remove_prefix(begin == std::string_view::npos ? text.size() : begin);
  const std::string_view op = text.substr(0, text.find_first_of(" \t"));
  if (const tunable_family* family = family_of_op(op)) return family->open(text, where);
  std::string sentence = "problem: starts with '" + std::string(op) + "', must be one of ";
  std::string_view separator;
  for (const tunable_family* family : tunable_families()) {
    for (const std::string_view one : family->ops()) {
      sentence.append(separator).append(one);
      separator = ", ";
    }
  }
  return status(status_code::malformed, std::move(sentence));
}

}  // namespace tessera::tuner
