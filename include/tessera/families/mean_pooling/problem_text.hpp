// Mean pooling problems as text, both ways; see spec/problem_text.hpp.
//
//   mean_pooling x=[8,2048,1024]bf16 mask=[8,2048]f32
//   mean_pooling_chunks_backward x=[1,4096,8,128]bf16 cu_seqlens=[5]i32 chunk_size=64
#pragma once

#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// The problem as text that `parse_mean_pooling_problem` reads back.
inline std::string to_text(const mean_pooling_problem& problem) {
  return text::problem_text(
      name_of(problem.op), problem,
      [](std::string_view, const tensor_shape&) { return text::shape_text::whole; });
}

/// Reads the text form; whether the shapes fit together is for `lower` to say.
inline result<mean_pooling_problem> parse_mean_pooling_problem(std::string_view line) {
  const result<mean_pooling_op> op = text::read_op<mean_pooling_op>(line);
  if (!op) return op.failure();
  text::problem_reader<mean_pooling_problem> reader({.op = *op}, name_of(*op));
  if (status done = reader.read_all(line); !done) return done;
  if (!reader.saw("x")) return text::malformed("problem: x is missing, e.g. x=[8,2048,1024]bf16");
  if (status done = reader.every_shape_has_a_type(", e.g. x=[8,2048,1024]bf16"); !done) return done;
  return reader.problem();
}

}  // namespace tessera
