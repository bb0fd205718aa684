// Attention problems as text, both ways; see spec/problem_text.hpp. k and v have q's dtype unless
// they say another, and v has k's shape unless it says another.
#pragma once

#include <string>
#include <string_view>

#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// The problem as text that `parse_problem` reads back.
inline std::string to_text(const flash_problem& problem) {
  return text::problem_text(
      name_of(problem.op), problem, [&](std::string_view name, const tensor_shape& shape) {
        if (name == "v" && shape == problem.k) return text::shape_text::omitted;
        const bool like_q = (name == "k" || name == "v") && shape.type == problem.q.type;
        return like_q ? text::shape_text::extents : text::shape_text::whole;
      });
}

/// Reads the text form. Refuses unknown operations and fields, repeated fields, and values that do
/// not have their field's form; whether the shapes fit together is for `lower` to say.
inline result<flash_problem> parse_problem(std::string_view line) {
  const result<flash_op> op = text::read_op<flash_op>(line);
  if (!op) return op.failure();
  text::problem_reader<flash_problem> reader({.op = *op}, name_of(*op));
  if (status done = reader.read_all(line); !done) return done;
  flash_problem& problem = reader.problem();
  if (!reader.saw("q")) return text::malformed("problem: q is missing, e.g. q=[1,2048,32,128]bf16");
  if (!reader.saw("k")) return text::malformed("problem: k is missing, e.g. k=[1,2048,8,128]");
  if (!problem.k.present()) problem.k.type = problem.q.type;
  if (!reader.saw("v")) problem.v = problem.k;
  if (!problem.v.present()) problem.v.type = problem.q.type;
  if (status done = reader.every_shape_has_a_type("; only k and v take that of q"); !done) {
    return done;
  }
  return problem;
}

}  // namespace tessera
