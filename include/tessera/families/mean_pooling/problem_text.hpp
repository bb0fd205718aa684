// Mean pooling problems as text, and back; see spec/problem_text.hpp.
#pragma once

#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera {

inline std::string to_text(const mean_pooling_problem& problem) {
  return text_of(view_of(problem));
}

inline result<mean_pooling_problem> parse_mean_pooling_problem(std::string_view line) {
  return parse_typed<mean_pooling_problem>(mean_pooling_table::operations, line);
}

}  // namespace tessera
