// Functors with derivatives, and calls that say the same with tensors and options: what the
// references know. The same text for the CPU and the GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/prim/common/hook_gradients.hpp>
#include <tessera/prim/common/host_device.hpp>

#include "tests/reference/operations.hpp"
#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {

/// A table of learned biases, and behind it a soft cap, if that is positive. The table has an
/// element for each position, or for each distance within `reach`. Positions may share elements,
/// and learn together.
struct learned_bias {
  const float* table = nullptr;
  float* d_table = nullptr;
  std::int64_t count = 0;      ///< gradients
  std::int64_t steps[4] = {};  // NOLINT: std::array's operator[] is no device function
  std::int64_t d_steps[4] = {};
  std::int64_t reach = 0;  ///< 0: of positions
  float slope = 0.0f;      ///< of linear biases
  float cap = 0.0f;

  TESSERA_HD std::int64_t index(const position& at) const { return index(at, steps); }
  TESSERA_HD std::int64_t index(const position& at, const std::int64_t (&of)[4]) const {
    if (reach == 0) {
      return at.batch * of[0] + at.head * of[1] + at.query * of[2] + at.key * of[3];
    }
    const std::int64_t distance = at.key - at.query_position;
    return (distance < -reach ? -reach : distance > reach ? reach : distance) + reach;
  }
  TESSERA_HD score_with_slope with_slope(float s, const position& at) const {
    const float bias = count > 0 ? table[index(at)] : 0.0f;
    if (std::isinf(bias) && bias < 0) return {bias, 0.0f};
    const float x = s + bias - slope * static_cast<float>(at.query_position - at.key);
    if (!(cap > 0.0f)) return {x, 1.0f};
    const float e = std::exp(-2.0f * std::fabs(x / cap));
    return {cap * std::tanh(x / cap), 4.0f * e / ((1.0f + e) * (1.0f + e))};
  }
  TESSERA_HD float operator()(float s, const position& at) const { return with_slope(s, at).score; }

  TESSERA_HD std::int64_t parameters() const { return count; }
  TESSERA_HD float* d_parameters() const { return d_table; }
  template <class Add>
  TESSERA_HD void add_gradients(float d_logit, float s, const position& at, const Add& add) const {
    add(index(at, d_steps), d_logit * with_slope(s, at).slope);
  }
};

/// Keys for which a byte says so, by position, or of the same document.
struct learned_mask {
  const std::uint8_t* visible = nullptr;
  std::int64_t steps[4] = {};  // NOLINT: as above
  const int* document = nullptr;

  TESSERA_HD bool operator()(const position& at) const {
    if (document != nullptr) return document[at.query] == document[at.key];
    return visible == nullptr || visible[at.batch * steps[0] + at.head * steps[1] +
                                         at.query * steps[2] + at.key * steps[3]] != 0;
  }
};

consteval std::size_t number_of(std::string_view tensor) {
  return static_cast<std::size_t>(attention_backward_table::tensor(tensor));
}

/// A call with biases, a mask and a cap, which functors then stand for.
class functor_call {
 public:
  static constexpr const operation& op = attention_backward_table::operations[0];

  /// Drawn with a trainable bias in front of a cap; null where no such call was found.
  static std::unique_ptr<functor_call> drawn(std::uint64_t index, dtype type, std::int64_t head_dim,
                                             double work) {
    random_source random = stream(31, index);
    for (int attempt = 0; attempt < 200; ++attempt) {
      auto call = std::unique_ptr<functor_call>(new functor_call);
      const std::array<call_trait, 2> traits{
          {{false, number_of("bias_pre")}, {false, number_of("d_bias_pre")}}};
      call_wishes wishes{.type = type, .traits = traits, .work = work};
      set_head_dim(wishes, head_dim);
      call->data_ = drawn_call(op, random, wishes, {.aligned = true});
      if (call->data_ == nullptr) return nullptr;
      const attention_backward_args& args = call->args();
      if (args.bias_post.present() || args.bias_pre.type != dtype::f32) continue;
      return call;
    }
    return nullptr;
  }

  /// A dense call whose biases and mask `fill(position, bias, visible)` says.
  template <class Fill>
  static std::unique_ptr<functor_call> filled(std::uint64_t index, dtype type,
                                              std::int64_t head_dim, double work,
                                              const Fill& fill) {
    random_source random = stream(32, index);
    for (int attempt = 0; attempt < 200; ++attempt) {
      call_wishes wishes{.type = type, .work = work};
      set_head_dim(wishes, head_dim);
      std::optional<owned_problem> problem = drawn_problem(op, random, wishes);
      if (!problem) return nullptr;
      auto& args = *reinterpret_cast<attention_backward_args*>(problem->tensors.data());
      if (args.cu_seqlens_q.present() || args.bias_pre.present()) continue;
      tensor_view scores{.type = dtype::f32, .rank = 4};
      scores.extent = {args.q.extent[0], args.q.extent[2], args.q.extent[1], args.k.extent[1]};
      args.bias_post = args.d_bias_post = args.mask = scores;
      args.mask.type = dtype::u8;
      auto call = std::unique_ptr<functor_call>(new functor_call);
      call->data_ = std::make_unique<call_data>(
          *problem, random, memory_wishes{.row_major = true, .aligned = true, .poison = false});
      if (!call->data_->refusal()) continue;
      call->fill_scores(fill);
      for (const std::size_t residual :
           {number_of("out"), number_of("lse"), number_of("row_max")}) {
        if (!call->data_->call().has(residual)) continue;
        reference::reference_of(op.name)->fill(call->data_->call(), residual, random);
      }
      call->data_->remember();
      return call;
    }
    return nullptr;
  }

  call_data& data() { return *data_; }
  const attention_backward_args& args() const {
    return *reinterpret_cast<const attention_backward_args*>(data_->tensors());
  }
  const flash_attention_options& options() const {
    return *static_cast<const flash_attention_options*>(data_->options());
  }

  /// What is left for tensors and options beside functors.
  attention_backward_args args_beside_functors() const {
    attention_backward_args left = args();
    left.bias_pre = left.bias_post = left.mask = left.d_bias_pre = left.d_bias_post = {};
    return left;
  }
  flash_attention_options options_beside_functors() const {
    flash_attention_options left = options();
    if (args().bias_pre.present()) left.logits_soft_cap.reset();  // the functor's
    return left;
  }

  /// Every position of a call that was filled, in row-major order.
  template <class Body>
  void each_position(const Body& body) const {
    const auto& extent = args().bias_post.extent;
    for (std::int64_t b = 0; b < extent[0]; ++b) {
      const std::int64_t offset = aligned_row(b);
      for (int h = 0; h < extent[1]; ++h) {
        for (std::int64_t i = 0; i < extent[2]; ++i) {
          for (std::int64_t j = 0; j < extent[3]; ++j) body({b, h, i, j, i + offset});
        }
      }
    }
  }

 private:
  functor_call() = default;

  static void set_head_dim(call_wishes& wishes, std::int64_t head_dim) {
    if (head_dim == 0) return;
    wishes.extents[static_cast<std::size_t>(attention_table::dim_of("D"))] = head_dim;
    wishes.extents[static_cast<std::size_t>(attention_table::dim_of("Dv"))] = head_dim;
  }

  template <class Fill>
  void fill_scores(const Fill& fill) {
    const tensor_view &bias = args().bias_post, &mask = args().mask;
    const auto place = [](const tensor_view& of, const position& at) {
      return at.batch * of.stride[0] + at.head * of.stride[1] + at.query * of.stride[2] +
             at.key * of.stride[3];
    };
    each_position([&](const position& at) {
      fill(at, static_cast<float*>(bias.data)[place(bias, at)],
           static_cast<std::uint8_t*>(mask.data)[place(mask, at)]);
    });
  }

  /// Where the first row of an entry stands.
  std::int64_t aligned_row(std::int64_t entry) const {
    if (options().causal_alignment != alignment::bottom_right) return 0;
    const auto length = [entry](const tensor_view& lengths, std::int64_t all) {
      return lengths.present() ? static_cast<const std::int32_t*>(lengths.data)[entry] : all;
    };
    return length(args().seqlens_k, args().k.extent[1]) -
           length(args().seqlens_q, args().q.extent[1]);
  }

  std::unique_ptr<call_data> data_;
};

/// Strides of a tensor of scores, 0 for axes that it broadcasts.
inline void put_steps(const tensor_view& scores, std::int64_t (&steps)[4]) {  // NOLINT: as above
  for (std::size_t axis = 0; axis < 4; ++axis) {
    steps[axis] = scores.extent[axis] > 1 ? scores.stride[axis] : 0;
  }
}

/// Elements of a tensor of f32 scores, without gaps.
class dense_scores {
 public:
  explicit dense_scores(const tensor_view& scores) : scores_(scores) {
    dense_ = scores;
    std::int64_t step = 1;
    for (std::size_t axis = 4; axis-- > 0;) {
      dense_.stride[axis] = step;
      step *= scores.extent[axis];
    }
    values.resize(static_cast<std::size_t>(step));
  }

  std::vector<float> values;

  const tensor_view& form() const { return dense_; }
  void fetch() {
    each([](float& dense, float& scores) { dense = scores; });
  }
  void put() {
    each([](float& dense, float& scores) { scores = dense; });
  }

 private:
  template <class Body>
  void each(const Body& body) {
    const auto& extent = scores_.extent;
    float* dense = values.data();
    for (std::int64_t b = 0; b < extent[0]; ++b) {
      for (std::int64_t h = 0; h < extent[1]; ++h) {
        for (std::int64_t i = 0; i < extent[2]; ++i) {
          for (std::int64_t j = 0; j < extent[3]; ++j) {
            body(*dense++,
                 static_cast<float*>(scores_.data)[b * scores_.stride[0] + h * scores_.stride[1] +
                                                   i * scores_.stride[2] + j * scores_.stride[3]]);
          }
        }
      }
    }
  }

  tensor_view scores_, dense_;
};

/// The document of each position.
inline std::vector<int> drawn_documents(std::uint64_t index) {
  std::vector<int> documents(400);
  random_source random = stream(33, index);
  for (std::size_t n = 1; n < documents.size(); ++n) {
    documents[n] = documents[n - 1] + (random.chance(0.1) ? 1 : 0);
  }
  return documents;
}

/// Judges a call whose functor says what its tensors say, d_bias_post aside, which nobody wrote.
inline void expect_right(functor_call& call, const call_expectation& expectation) {
  for (const judged_output& output : expectation.outputs(call.data().tensors())) {
    if (output.name == "d_bias_post") continue;
    EXPECT_EQ(output.complaint(), "") << call.data().text();
  }
}

/// The gradients of the biases that a table stands for, summed, with what an error is relative to.
struct table_gradients {
  std::vector<double> values, sizes;
  double logits = 0;

  table_gradients(const functor_call& call, const learned_bias& table,
                  const reference::expected_tensors& gradients)
      : values(static_cast<std::size_t>(table.count)), sizes(values.size()) {
    const reference::expected_tensor& of_biases = *std::ranges::find(
        gradients, number_of("d_bias_post"), &reference::expected_tensor::tensor);
    std::size_t n = 0;
    call.each_position([&](const position& at) {
      const auto to = static_cast<std::size_t>(table.index(at));
      values[to] += of_biases.values[n];
      sizes[to] += of_biases.sizes[n];
      logits = std::max(logits, of_biases.logits[n++]);
    });
  }
};

inline std::string table_complaint(functor_call& call, const learned_bias& table,
                                   const std::vector<float>& d_table) {
  const bound_call& bound = call.data().call();
  const reference::operation_reference& known = *reference::reference_of(call.op.name);
  const table_gradients truth(call, table, known.exact(bound));
  const table_gradients peer(call, table, known.as_stored(bound));
  const double floor = floor_of("d_bias_post", call.args().q.type);
  const double least = 0.01 * largest(truth.sizes);
  const double conditioned = std::max(1.0, 4.0 * 0x1p-24 * truth.logits / floor);
  const auto unit = [&](std::size_t n) {
    return std::max({truth.sizes[n], least, 0x1p-110 / floor}) * conditioned;
  };
  const std::vector<double> computed(d_table.begin(), d_table.end());
  const comparison found = judged(compare_in_units(computed, truth.values, unit),
                                  compare_in_units(peer.values, truth.values, unit).error, floor);
  return found.passed ? "" : sentence_of(found, "d_table", {dtype::f32, 1, {table.count}});
}

}  // namespace tessera::support
