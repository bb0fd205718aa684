// Attention problems as text, and back; see spec/problem_text.hpp.
#pragma once

#include <string>
#include <string_view>

#include <tessera/families/attention/lower.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera {

inline std::string to_text(const flash_problem& problem) {
  return text_of(view_of(problem));
}

inline result<flash_problem> parse_problem(std::string_view line) {
  return parse_typed<flash_problem>(attention_table::operations, line);
}

}  // namespace tessera
