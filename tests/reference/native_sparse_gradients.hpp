// The gradients of native sparse attention: sums of what each branch of each row adds, with the
// selection as it was.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention_backward.hpp"
#include "elements.hpp"
#include "native_sparse_attention.hpp"

namespace tessera::reference {

struct native_gradients {
  gradient d_q, d_k, d_v, d_gates[3];
};

/// Adds what a branch of a row makes of its keys.
template <class Precision>
class native_backward {
  using real = typename Precision::real;
  using evaluation = native_evaluation<Precision>;

 public:
  native_backward(const native_call& call, const tensor_view& d_out)
      : call_(call),
        d_out_(d_out),
        d_out_elements_(evaluation::elements_of(d_out)),
        evaluation_(call) {
    result.d_q.make(call.q.elements());
    result.d_k.make(call.k.elements());
    result.d_v.make(call.v.elements());
    const std::int64_t heads = call.q.extent[2];
    for (gradient& gate : result.d_gates) {
      gate.make(call.q.extent[0] * call.q.extent[1] * heads);
    }
    for (const native_sequence& tokens : native_sequences(call.q, call.offsets)) {
      for (std::int64_t t = 0; t < tokens.length; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const auto blocks = call.given(tokens, t, call.kv_head_of(h));
          evaluation_.for_each_branch(
              blocks, t, [&](const native_keys& keys, const tensor_view& gate_view, int branch) {
                add_branch(tokens, t, h, keys, gate_view, branch);
              });
        }
      }
    }
  }

  native_gradients result;

 private:
  void add_branch(const native_sequence& tokens, std::int64_t t, std::int64_t h,
                  const native_keys& keys, const tensor_view& gate_view, int branch) {
    if (keys.empty()) return;
    const auto found = evaluation_.softmax(tokens, t, h, keys);
    const auto q = evaluation_.query(tokens, t, h);
    const auto d_out = evaluation::row_of(d_out_elements_, d_out_, tokens, t, h);
    const auto gate = static_cast<double>(evaluation_.gate(gate_view, tokens, t, h));
    const auto scale = call_.scale();
    const std::int64_t place =
        (tokens.entry * call_.q.extent[1] + tokens.begin + t) * call_.q.extent[2] + h;
    double d_gate = 0, d_gate_size = 0;
    for (std::size_t d = 0; d < d_out.size(); ++d) {
      const auto term = static_cast<double>(d_out[d] * found.out[d]);
      d_gate += term;
      d_gate_size += std::fabs(static_cast<double>(d_out[d])) * found.out_size;
    }
    result.d_gates[branch].add(place, d_gate, d_gate_size, found.logit_size);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      double into = 0, into_size = 0;
      for (std::size_t d = 0; d < d_out.size(); ++d) {
        const auto term = static_cast<double>(d_out[d] * found.v[n][d]);
        into += term;
        into_size += std::fabs(term);
      }
      const auto weight = static_cast<double>(found.weights[n]);
      const double d_score = weight * gate * (into - d_gate) * scale;
      const double size = std::fabs(weight * gate * scale) * (into_size + d_gate_size);
      for (std::size_t d = 0; d < q.size(); ++d) {
        const auto key = static_cast<double>(found.k[n][d]);
        result.d_q.add(place * call_.q.extent[3] + static_cast<std::int64_t>(d), d_score * key,
                       size * std::fabs(key), found.logit_size);
      }
      add_to_key(tokens, h, keys[n], q, d_score, size, found.logit_size, result.d_k);
      add_to_key(tokens, h, keys[n], d_out, weight * gate, std::fabs(weight * gate),
                 found.logit_size, result.d_v);
    }
  }
  void add_to_key(const native_sequence& tokens, std::int64_t h, native_key key,
                  const std::vector<real>& row, double factor, double size, double logit,
                  gradient& to) {
    const double share = 1.0 / static_cast<double>(key.end - key.begin);
    const auto width = static_cast<std::int64_t>(row.size());
    for (std::int64_t j = key.begin; j < key.end; ++j) {
      const std::int64_t place =
          ((tokens.entry * call_.q.extent[1] + tokens.begin + j) * call_.k.extent[2] +
           call_.kv_head_of(h)) *
          width;
      for (std::int64_t d = 0; d < width; ++d) {
        const auto element = static_cast<double>(row[static_cast<std::size_t>(d)]);
        to.add(place + d, factor * element * share, size * std::fabs(element) * share, logit);
      }
    }
  }

  const native_call& call_;
  const tensor_view& d_out_;
  std::vector<real> d_out_elements_;
  evaluation evaluation_;
};

}  // namespace tessera::reference
