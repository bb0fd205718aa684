// Mean pooling over the problems of bench/shapes: each is verified against the definition on some
// columns of some sequences, then timed through a plan, in turn with the limit that binds it.
#include "tests/reference/mean_pooling.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/api/mean_pooling.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/report.hpp"
#include "bench/support/rounds.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/guarded_tensor.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera;

/// The tensors of a problem. Tokens lie in memory of at least three last-level caches, of which
/// each round uses another piece.
class pooling_workload {
 public:
  explicit pooling_workload(const mean_pooling_problem& problem) : problem_(problem) {
    const bool backward = is_backward(problem.op);
    make_offsets();
    if (problem.tensors.mask.present()) fill(args_.mask = make(problem.tensors.mask, 1), 1.0f);
    const tensor_view means = make(shape_of_means(), 1);
    const std::size_t bytes = bytes_of(problem.tensors.x);
    pieces_ = 1 + 3 * bench::last_level_cache_bytes() / std::max<std::size_t>(bytes, 1);
    const tensor_view tokens = make(problem.tensors.x, pieces_);
    (backward ? args_.d_x : args_.x) = tokens;
    (backward ? args_.d_out : args_.out) = means;
    fill(backward ? means : tokens, 0.0f);
    auto* const first = static_cast<std::byte*>(tokens.data);
    for (std::size_t piece = 1; piece < pieces_; ++piece) {
      std::memcpy(first + piece * bytes, first, bytes);
    }
  }

  mean_pooling_args args(std::size_t round = 0) const {
    mean_pooling_args one = args_;
    tensor_view& tokens = is_backward(problem_.op) ? one.d_x : one.x;
    tokens.data =
        static_cast<std::byte*>(tokens.data) + round % pieces_ * bytes_of(problem_.tensors.x);
    return one;
  }

  /// Bytes of every input and output.
  double bytes() const {
    const mean_pooling_args one = args();
    double sum = 0;
    for (const tensor_view* view : {&one.x, &one.out, &one.d_out, &one.d_x, &one.mask}) {
      if (view->present()) sum += static_cast<double>(bytes_of(*view));
    }
    return sum;
  }

 private:
  static std::size_t bytes_of(const tensor_view& shape) {
    std::size_t bytes = size_of(shape.type);
    for (int axis = 0; axis < shape.rank; ++axis) {
      bytes *= static_cast<std::size_t>(shape.extent[static_cast<std::size_t>(axis)]);
    }
    return bytes;
  }

  tensor_view make(const tensor_view& shape, std::size_t copies) {
    memory_.emplace_back(bytes_of(shape) * copies);
    tensor_view view;
    view.data = memory_.back().data();
    view.type = shape.type;
    view.rank = shape.rank;
    view.extent = shape.extent;
    view.stride = contiguous_strides(view.extent, view.rank);
    return view;
  }

  static void fill(const tensor_view& view, float offset) {
    support::random_source random(1);
    for (std::int64_t n = 0; n < view.elements(); ++n) {
      support::store(view, n, static_cast<double>(random.bell() * 0.25f + offset));
    }
  }

  /// Sequences of equal length.
  void make_offsets() {
    if (!problem_.tensors.cu_seqlens.present()) return;
    args_.cu_seqlens = make(problem_.tensors.cu_seqlens, 1);
    const std::int64_t count = problem_.tensors.cu_seqlens.extent[0] - 1;
    const std::int64_t tokens = problem_.tensors.x.extent[has_chunks(problem_.op) ? 1 : 0];
    auto* const offset = static_cast<std::int32_t*>(args_.cu_seqlens.data);
    for (std::int64_t n = 0; n <= count; ++n) {
      offset[n] = static_cast<std::int32_t>(tokens * n / std::max<std::int64_t>(count, 1));
    }
  }

  tensor_view shape_of_means() const {
    mean_pooling_args shapes = args_;
    tensor_view& tokens = is_backward(problem_.op) ? shapes.d_x : shapes.x;
    tokens.type = problem_.tensors.x.type;
    tokens.rank = problem_.tensors.x.rank;
    tokens.extent = problem_.tensors.x.extent;
    const auto pooled = reference::pooled_of(problem_.op, shapes, problem_.options);
    const auto count = static_cast<std::int64_t>(pooled.size());
    const auto& x = problem_.tensors.x.extent;
    if (has_chunks(problem_.op))
      return shaped(problem_.tensors.x.type, {x[0], count / x[0], x[2], x[3]});
    return shaped(problem_.tensors.x.type,
                  {count, x[static_cast<std::size_t>(problem_.tensors.x.rank - 1)]});
  }

  mean_pooling_problem problem_;
  std::vector<bench::buffer> memory_;
  mean_pooling_args args_{};
  std::size_t pieces_ = 1;
};

/// Judges the first columns of the last head of every sequence; the message is empty if they are
/// right.
support::comparison verify(const mean_pooling_problem& problem, mean_pooling_args args) {
  constexpr std::int64_t most = 4;
  for (tensor_view* view : {&args.x, &args.out, &args.d_out, &args.d_x}) {
    if (!view->present()) continue;
    const auto last = static_cast<std::size_t>(view->rank - 1);
    view->extent[last] = std::min(view->extent[last], most);
    if (!has_chunks(problem.op)) continue;
    const std::int64_t skipped = (view->extent[2] - 1) * view->stride[2];
    view->data = static_cast<std::byte*>(view->data) +
                 skipped * static_cast<std::int64_t>(size_of(view->type));
    view->extent[2] = 1;
  }
  const tensor_view& ours = is_backward(problem.op) ? args.d_x : args.out;
  const auto truth = reference::mean_pooling<>(problem.op, args, problem.options);
  const auto peer =
      reference::mean_pooling<reference::pooling_as_stored>(problem.op, args, problem.options);
  const double scale = support::largest(truth.sizes);
  const auto unit = [&](std::size_t) { return scale; };
  return support::judged(support::compare_in_units(reference::to_doubles(ours), truth.values, unit),
                         support::compare_in_units(peer.values, truth.values, unit).error,
                         support::floor_of(is_backward(problem.op) ? "d_x" : "out", ours.type));
}

bench::measured_case measure_case(const bench::bench_case& one,
                                  const mean_pooling_problem& problem) {
  bench::measured_case found;
  const result<mean_pooling_plan> made = plan(problem, {.threads = one.threads});
  if (!made) {
    found.failure = made.message();
    return found;
  }
  const pooling_workload work(problem);
  if (const status done = made->run(work.args()); !done) {
    found.failure = done.message();
    return found;
  }
  const support::comparison verdict = verify(problem, work.args());
  found.error = verdict.error;
  found.error_bound = verdict.bound;
  found.row = std::string(made->choice().row());
  found.threads = made->threads();
  found.bytes = work.bytes();
  const mean_pooling_sizes sizes = sizes_of(problem);
  found.flops = static_cast<double>(sizes.tokens) * static_cast<double>(sizes.columns);
  found.goal = one.goal;
  if (!verdict.passed) {
    found.failure = support::sentence_of(verdict, "result", {dtype::f64, 1, {sizes.columns}});
    return found;
  }
  bench::take_rounds(
      found, made->choice().instance->config.target,
      [&](std::size_t index) { return static_cast<bool>(made->run(work.args(index))); },
      bench::nothing_beside{});
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (const bench::bench_case& one :
         bench::read_cases(TESSERA_SHAPES_DIR, mean_pooling_family::ops)) {
      const result<mean_pooling_problem> problem = mean_pooling_family::parse(one.problem);
      if (!problem) {
        std::fprintf(stderr, "%s: %s\n", one.problem.c_str(), problem.message().c_str());
        return 2;
      }
      benchmark::RegisterBenchmark(bench::name_of(one).c_str(),
                                   [one, problem = *problem](benchmark::State& state) {
                                     bench::put(state, measure_case(one, problem));
                                   })
          ->Iterations(1)
          ->UseManualTime();
    }
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
