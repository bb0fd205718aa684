// The call that the notes of a case put beside it.
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/families/attention/problem.hpp>

#include "bench/support/case_list.hpp"

namespace tessera::bench {

/// The problem beside, and how that one is run.
inline std::pair<bench_case, flash_problem> beside_of(const bench_case& timing,
                                                      const flash_problem& problem) {
  bench_case how = timing;
  how.lengths.clear();
  flash_problem other;
  other.tensors.q = problem.tensors.q, other.tensors.k = problem.tensors.k,
  other.tensors.v = problem.tensors.v;
  if (timing.beside == "one_thread") {
    how.threads = 1;
    return {how, problem};
  }
  if (timing.beside == "f32") {
    other = problem;
    other.tensors.q.type = other.tensors.k.type = other.tensors.v.type = dtype::f32;
  } else if (timing.beside == "square") {
    constexpr std::int64_t rows = 2048;
    other.tensors.q.extent[1] = other.tensors.k.extent[1] = other.tensors.v.extent[1] = rows;
  } else {
    other.options.causal = problem.options.causal;
    if (is_packed(problem)) {
      for (tensor_view* shape : {&other.tensors.q, &other.tensors.k, &other.tensors.v}) {
        *shape = shaped(shape->type, {1, shape->extent[0], shape->extent[1], shape->extent[2]});
      }
    }
  }
  return {how, other};
}

}  // namespace tessera::bench
