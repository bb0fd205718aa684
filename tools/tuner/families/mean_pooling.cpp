// Mean pooling, forward and backward: inputs as encoders have them, and the definition.
#include "tests/reference/mean_pooling.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/runtime/mean_pooling.hpp>

#include "bench/support/memory.hpp"
#include "tests/reference/elements.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/guarded_tensor.hpp"
#include "tests/support/random.hpp"
#include "tools/tuner/families.hpp"
#include "tools/tuner/family_problem.hpp"
#include "tools/tuner/ragged.hpp"

namespace tessera::tuner {
namespace {

/// The shape of out and d_out. Packed sequences are cut at whole chunks (see the constructor), so
/// that the number of chunks follows from the problem.
tensor_shape means_of(const mean_pooling_problem& problem) {
  const auto& x = problem.x.extent;
  tensor_shape means = problem.x;
  if (has_chunks(problem.op)) {
    const std::int64_t chunk = problem.options.chunk_size;
    means.extent[1] = x[1] / chunk + (x[1] % chunk != 0 ? 1 : 0);
  } else if (is_packed(problem)) {
    means.extent[0] = std::max<std::int64_t>(problem.cu_seqlens.extent[0] - 1, 0);
  } else {
    means.rank = 2;
    means.extent = {x[0], x[2]};
  }
  return means;
}

class mean_pooling_workload {
 public:
  mean_pooling_workload(const mean_pooling_problem& problem, std::uint64_t seed,
                        std::size_t cold_bytes)
      : problem_(problem), random_(seed) {
    tensor_view& read = is_backward(problem.op) ? args_.d_out : args_.x;
    read = make(is_backward(problem.op) ? means_of(problem) : problem.x, cold_bytes);
    if (problem.mask.present()) args_.mask = make(problem.mask, 0);
    if (!problem.cu_seqlens.present()) return;
    args_.cu_seqlens = make(problem.cu_seqlens, 0);
    const bool chunks = has_chunks(problem.op);
    cut_raggedly(args_.cu_seqlens, problem.x.extent[chunks ? 1 : 0], seed);
    if (chunks) cut_at_chunks();
  }

  mean_pooling_args args(std::size_t round) const {
    constexpr std::size_t prime = 7919;
    mean_pooling_args one = args_;
    tensor_view& read = is_backward(problem_.op) ? one.d_out : one.x;
    read.data = static_cast<std::byte*>(read.data) + round * prime % pieces_ * piece_bytes_;
    return one;
  }

  std::vector<std::span<const std::byte>> blocks() const {
    std::vector<std::span<const std::byte>> list;
    for (const bench::buffer& one : memory_) list.emplace_back(one.data(), one.size());
    return list;
  }

  static std::vector<result_tensor<mean_pooling_args>> outputs(
      const mean_pooling_problem& problem) {
    using args = mean_pooling_args;
    if (is_backward(problem.op)) return {{"d_x", &args::d_x, problem.x}};
    return {{"out", &args::out, means_of(problem)}};
  }

  static dtype type_of(const mean_pooling_problem& problem) { return problem.x.type; }

  /// The definition visits every element: where the reference row has spoken, small problems only.
  std::string disagreement(const mean_pooling_args& args, bool thorough) const {
    const tensor_view& output = is_backward(problem_.op) ? args.d_x : args.out;
    const tensor_view& tokens = is_backward(problem_.op) ? args.d_x : args.x;
    if (!thorough && tokens.elements() > std::int64_t{1} << 21) return {};
    using exact = reference::pooling_evaluation<reference::pooling_exact>;
    using stored = reference::pooling_evaluation<reference::pooling_as_stored>;
    const exact truth(problem_.op, args, problem_.options);
    const stored peer(problem_.op, args, problem_.options);
    const auto against = [&](const std::vector<double>& values) {
      return support::compare(values, truth.result().values,
                              output.extent[static_cast<std::size_t>(output.rank - 1)],
                              support::error_scale::row);
    };
    const std::string_view name = is_backward(problem_.op) ? "d_x" : "out";
    const support::comparison found =
        support::judged(against(reference::to_doubles(output)), against(peer.result().values).error,
                        support::floor_of(name, problem_.x.type));
    return found.passed ? "" : support::sentence_of(found, name, output.shape());
  }

 private:
  /// A tensor of ordinary values in memory of at least `cold_bytes`, repeated piece by piece. Their
  /// mean is not 0: a mean of values that cancel says nothing about a kernel.
  tensor_view make(const tensor_shape& shape, std::size_t cold_bytes) {
    const result_tensor<mean_pooling_args> tensor{{}, nullptr, shape};
    const std::size_t once = (tensor.bytes() + 63) / 64 * 64;
    const std::size_t pieces = once > 0 ? 1 + cold_bytes / once : 1;
    memory_.emplace_back(once * pieces);
    std::byte* const data = memory_.back().data();
    const tensor_view view = tensor.at(data);
    for (std::int64_t n = 0; n < view.elements(); ++n) support::store(view, n, draw(shape.type));
    for (std::size_t piece = 1; piece < pieces; ++piece) {
      std::memcpy(data + piece * once, data, once);
    }
    if (cold_bytes > 0) {
      pieces_ = pieces;
      piece_bytes_ = once;
    }
    return view;
  }

  /// Masks of bytes keep nine tokens of ten.
  double draw(dtype type) {
    if (type == dtype::u8) return random_.chance(0.9) ? 1 : 0;
    return 0.5 + static_cast<double>(random_.bell());
  }

  void cut_at_chunks() {
    auto* const offsets = static_cast<std::int32_t*>(args_.cu_seqlens.data);
    for (std::int64_t n = 1; n + 1 < args_.cu_seqlens.extent[0]; ++n) {
      offsets[n] -= static_cast<std::int32_t>(offsets[n] % problem_.options.chunk_size);
    }
  }

  mean_pooling_problem problem_;
  support::random_source random_;
  std::vector<bench::buffer> memory_;
  mean_pooling_args args_{};
  std::size_t pieces_ = 1;
  std::size_t piece_bytes_ = 0;
};

}  // namespace

const tunable_family& tunable_mean_pooling() {
  static const family_adapter<mean_pooling_family, mean_pooling_workload> family{};
  return family;
}

}  // namespace tessera::tuner
