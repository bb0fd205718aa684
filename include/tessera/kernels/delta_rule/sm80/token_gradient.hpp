// From the gradients of what steps took of a token, rows in shared memory, to those of its
// operands. A warp does a token.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm80/backward_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// The gradients of one value head of a sequence.
template <class Element, class Shape>
class token_gradients {
 public:
  using reader = token_reader<Element, Shape>;
  __device__ token_gradients(const backward_args& args, const sequence& tokens,
                             const reader& operands, std::int64_t head)
      : args_(args), call_(args.call), tokens_(tokens), operands_(operands), head_(head) {}

  /// `of` is what the steps took, `d_of` the gradient of that. Of raw gates, the rows `decay` and
  /// `read` of `d_of` become what the token adds to the gradients of dt_bias and of A_log.
  __device__ void store(std::int64_t token, const token_rows& of, const token_rows& d_of,
                        float d_beta) const {
    const bool delta = call_.update == delta_rule_update::delta;
    reader::for_each_channel([&](int c) {
      d_of.query[c] *= call_.scale;
      if (!delta) return;
      // read = decay key: its gradient is a part of theirs.
      d_of.key[c] = fmaf(of.decay[c], d_of.read[c], d_of.key[c]);
      d_of.decay[c] = fmaf(of.key[c], d_of.read[c], d_of.decay[c]);
    });
    store_operand(call_.q, call_.d_q, args_.d_query, token, d_of.query);
    store_operand(call_.k, call_.d_k, args_.d_key, token, d_of.key);
    if (delta) {
      store_beta(token, d_beta);
    } else {
      store_low_rank(token, of, d_of);
    }
    if (call_.decay.data != nullptr) store_decay(token, of, d_of);
  }

  /// Gradients of a token that takes no part, but for its value.
  __device__ void clear(std::int64_t token) const {
    const auto zero = [](int) { return 0.0f; };
    put_shared(call_.d_q, args_.d_query, token, zero);
    put_shared(call_.d_k, args_.d_key, token, zero);
    put_row(call_.d_read, token, zero);
    put_row(call_.d_write, token, zero);
    if (call_.decay_has_channels) {
      put_row(call_.d_decay, token, zero);
    } else {
      put_one(call_.d_decay, token, 0.0f);
    }
    put_one(call_.d_beta, token, 0.0f);
  }

 private:
  /// Stores value(channel).
  template <class Value>
  __device__ __forceinline__ void put_row(const delta_rule_output& to, std::int64_t token,
                                          const Value& value) const {
    if (to.data == nullptr) return;
    const std::int64_t at = row_of(to, tokens_.entry, token, head_);
    reader::for_each_channel([&](int c) {
      if (c < call_.key_dim) prim::cuda::put_number(to.data, to.type, at + c, value(c));
    });
  }
  __device__ void put_one(const delta_rule_output& to, std::int64_t token, float x) const {
    if (to.data == nullptr || threadIdx.x % 32 != 0) return;
    prim::cuda::put_number(to.data, to.type, row_of(to, tokens_.entry, token, head_), x);
  }
  /// Of q or k: to the tensor, or to the share of the value head.
  template <class Value>
  __device__ __forceinline__ void put_shared(const delta_rule_output& to, float* shares,
                                             std::int64_t token, const Value& value) const {
    if (shares == nullptr) return put_row(to, token, value);
    float* const share =
        shares +
        ((tokens_.entry * call_.tokens + token) * call_.value_heads + head_) * call_.key_dim;
    reader::for_each_channel([&](int c) {
      if (c < call_.key_dim) share[c] = value(c);
    });
  }

  /// Through the normalisation and the activation of q or k.
  __device__ void store_operand(const delta_rule_input& operand, const delta_rule_output& to,
                                float* shares, std::int64_t token, const float* d_row) const {
    float inverse = 1.0f, along = 0.0f;
    if (call_.normalizes) {
      float squares = 0.0f;
      reader::for_each_channel([&](int c) {
        if (c >= call_.key_dim) return;
        const float x = operands_.operand_at(operand, token, c);
        squares = fmaf(x, x, squares);
        along = fmaf(x, d_row[c], along);
      });
      inverse = inverse_length(squares);
      along = prim::cuda::sum_of_warp(along) * inverse * inverse;
    }
    put_shared(to, shares, token, [&](int c) {
      float d_x = d_row[c];
      if (call_.normalizes) {
        d_x = inverse * fmaf(-along, operands_.operand_at(operand, token, c), d_x);
      }
      if (call_.activates) {
        d_x *= slope_of_silu(operands_.element_at(operand, token, operands_.key_head(), c));
      }
      return d_x;
    });
  }

  __device__ void store_beta(std::int64_t token, float d_beta) const {
    if (call_.beta_is_raw) {
      const float share = sigmoid<device_code>(prim::cuda::number_at(
          call_.beta.data, call_.beta.type, row_of(call_.beta, tokens_.entry, token, head_)));
      d_beta *= call_.beta_most * share * (1.0f - share);
    }
    put_one(call_.d_beta, token, d_beta);
  }

  __device__ void store_low_rank(std::int64_t token, const token_rows& of,
                                 const token_rows& d_of) const {
    if (call_.update == delta_rule_update::multiplicative) {
      reader::for_each_channel([&](int c) {  // read = -kk, write = kk rate
        if (c >= call_.key_dim) return;
        d_of.read[c] = d_of.write[c] * operands_.operand_at(call_.write, token, c) - d_of.read[c];
        d_of.write[c] *= -of.read[c];
      });
    }
    put_row(call_.d_read, token, [&](int c) { return d_of.read[c]; });
    put_row(call_.d_write, token, [&](int c) { return d_of.write[c]; });
  }

  __device__ void store_decay(std::int64_t token, const token_rows& of,
                              const token_rows& d_of) const {
    const delta_rule_input& decay = call_.decay;
    const std::int64_t at = row_of(decay, tokens_.entry, token, head_);
    if (call_.decay_has_channels) {
      reader::for_each_channel([&](int c) {
        if (c >= call_.key_dim) return;
        d_of.decay[c] = through_gate(prim::cuda::number_at(decay.data, decay.type, at + c), c,
                                     of.decay[c] * d_of.decay[c], d_of);
      });
      return put_row(call_.d_decay, token, [&](int c) { return d_of.decay[c]; });
    }
    float sum = 0.0f;
    reader::for_each_channel([&](int c) { sum = fmaf(of.decay[c], d_of.decay[c], sum); });
    sum = prim::cuda::sum_of_warp(sum);
    if (threadIdx.x % 32 != 0) return;
    put_one(call_.d_decay, token,
            through_gate(prim::cuda::number_at(decay.data, decay.type, at), 0, sum, d_of));
  }

  /// The gradient of a raw gate from that of its log decay.
  __device__ float through_gate(float x, int c, float d_log_decay, const token_rows& d_of) const {
    if (!call_.gate.raw) return d_log_decay;
    const gate_slopes slopes = operands_.gate().slopes(x, c);
    d_of.decay[c] = slopes.by_raw * d_log_decay;
    d_of.read[c] = slopes.by_a_log * d_log_decay;
    return d_of.decay[c];
  }

  const backward_args& args_;
  const delta_rule_kernel_args& call_;
  const sequence& tokens_;
  const reader& operands_;
  std::int64_t head_;
};

}  // namespace tessera::kernels::delta_rule::sm80
