// Mean pooling, forward and backward: inputs as encoders have them, and the definition.
#include "tests/reference/mean_pooling.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>

#include "bench/support/memory.hpp"
#include "tests/reference/elements.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/guarded_tensor.hpp"
#include "tests/support/random.hpp"
#include "tools/tuner/declared_problem.hpp"
#include "tools/tuner/families.hpp"
#include "tools/tuner/ragged.hpp"

namespace tessera::tuner {
namespace {

/// The shape of out and d_out. Packed sequences are cut at whole chunks (see the constructor), so
/// that the number of chunks follows from the problem.
tensor_view means_of(const mean_pooling_problem& problem) {
  tensor_view means = tokens_of(problem.op, problem.tensors);
  const auto x = means.extent;
  if (has_chunks(problem.op)) {
    const std::int64_t chunk = problem.options.chunk_size;
    means.extent[1] = x[1] / chunk + (x[1] % chunk != 0 ? 1 : 0);
  } else if (problem.tensors.cu_seqlens.present()) {
    means.extent[0] = std::max<std::int64_t>(problem.tensors.cu_seqlens.extent[0] - 1, 0);
  } else {
    means.rank = 2;
    means.extent = {x[0], x[2]};
  }
  return means;
}

class mean_pooling_inputs final : public workload_inputs {
 public:
  mean_pooling_inputs(const mean_pooling_problem& problem, std::uint64_t seed,
                      std::size_t cold_bytes)
      : problem_(problem), random_(seed) {
    tensor_view& read = is_backward(problem.op) ? args_.d_out : args_.x;
    read =
        make(is_backward(problem.op) ? means_of(problem) : tokens_of(problem.op, problem.tensors),
             cold_bytes);
    if (problem.tensors.mask.present()) args_.mask = make(problem.tensors.mask, 0);
    if (!problem.tensors.cu_seqlens.present()) return;
    args_.cu_seqlens = make(problem.tensors.cu_seqlens, 0);
    const bool chunks = has_chunks(problem.op);
    cut_raggedly(args_.cu_seqlens, tokens_of(problem.op, problem.tensors).extent[chunks ? 1 : 0],
                 seed);
    if (chunks) cut_at_chunks();
  }

  std::vector<tensor_view> tensors(std::size_t round) const override {
    constexpr std::size_t prime = 7919;
    mean_pooling_args args = args_;
    tensor_view& read = is_backward(problem_.op) ? args.d_out : args.x;
    read.data = static_cast<std::byte*>(read.data) + round * prime % pieces_ * piece_bytes_;
    const std::span views(tensors_of(args), sizeof(args) / sizeof(tensor_view));
    return {views.begin(), views.end()};
  }

  std::vector<std::span<const std::byte>> blocks() const override {
    std::vector<std::span<const std::byte>> list;
    for (const bench::buffer& one : memory_) list.emplace_back(one.data(), one.size());
    return list;
  }

  /// The definition visits every element: where the reference row has spoken, small problems only.
  std::string disagreement(const std::vector<tensor_view>& tensors, bool thorough) const override {
    const auto& args = *reinterpret_cast<const mean_pooling_args*>(tensors.data());
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
                        support::floor_of(name, tokens_of(problem_.op, problem_.tensors).type));
    return found.passed ? "" : support::sentence_of(found, name, output.shape());
  }

 private:
  /// A tensor of ordinary values in memory of at least `cold_bytes`, repeated piece by piece. Their
  /// mean is not 0: a mean of values that cancel says nothing about a kernel.
  tensor_view make(const tensor_view& shape, std::size_t cold_bytes) {
    tensor_view view = shape;
    view.stride = contiguous_strides(view.extent, view.rank);
    const std::size_t bytes = static_cast<std::size_t>(view.elements()) * size_of(view.type);
    const std::size_t once = (bytes + 63) / 64 * 64;
    const std::size_t pieces = once > 0 ? 1 + cold_bytes / once : 1;
    memory_.emplace_back(once * pieces);
    std::byte* const data = memory_.back().data();
    view.data = data;
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
  static const auto family =
      declared_family("mean_pooling",
                      [](const problem_view& problem, std::uint64_t seed,
                         std::size_t cold_bytes) -> std::unique_ptr<workload_inputs> {
                        const mean_pooling_problem typed{
                            .op = static_cast<mean_pooling_op>(problem.op->place),
                            .tensors = *reinterpret_cast<const mean_pooling_args*>(problem.tensors),
                            .options = *static_cast<const mean_pooling_options*>(problem.options)};
                        return std::make_unique<mean_pooling_inputs>(typed, seed, cold_bytes);
                      });
  return *family;
}

}  // namespace tessera::tuner
