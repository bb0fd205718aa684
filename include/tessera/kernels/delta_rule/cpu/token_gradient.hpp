// From the gradients of what steps took of a token to those of its operands.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Sums over the tokens of a sequence and value head: of the gradients of A_log, and of dt_bias of
/// the head or of its channels.
struct gate_sums {
  double* a_log = nullptr;
  double* bias = nullptr;
};

/// Gradients of the tokens of one value head that no other head shares, and of its gates.
template <class Row>
class gate_gradients {
 public:
  using isa_type = typename traits<Row>::isa_type;

  /// `row` is scratch of `padded(key_dim)` floats.
  gate_gradients(const delta_rule_kernel_args& args, std::int64_t entry, std::int64_t head,
                 const gate_sums& sums, float* row)
      : args_(args), gate_(args.gate, head), sums_(sums), row_(row), entry_(entry), head_(head) {}

  /// `token` is what the steps took, `d_token` the gradient of that.
  void store(std::int64_t token, const token_rows& of, const token_rows& d_of, float d_beta) const {
    if (args_.update == delta_rule_update::delta) {
      fold_read(of, d_of);
      store_beta(token, d_beta);
    } else {
      store_low_rank(token, of, d_of);
    }
    if (args_.decay.data != nullptr) {
      for (std::int64_t c = 0; c < args_.key_dim; ++c) d_of.decay[c] *= of.decay[c];
      store_decay(token, d_of.decay);
    }
  }
  /// From the gradients of log decays of its channels, with all of a key's in `d_of`.
  void store_from_logs(std::int64_t token, const token_rows& of, const token_rows& d_of,
                       const float* d_log_decay, float d_beta) const {
    if (args_.update == delta_rule_update::delta) {
      store_beta(token, d_beta);
    } else {
      store_low_rank(token, of, d_of);
    }
    if (args_.decay.data != nullptr) store_decay(token, d_log_decay);
  }

  /// Gradients of a token that takes no part.
  void clear(std::int64_t token) const {
    std::fill_n(row_, args_.key_dim, 0.0f);
    for (const delta_rule_output* to : {&args_.d_read, &args_.d_write}) {
      store_row_of(*to, token, row_, args_.key_dim);
    }
    store_row_of(args_.d_decay, token, row_, args_.decay_has_channels ? args_.key_dim : 1);
    store_row_of(args_.d_beta, token, row_, 1);
  }

 private:
  void store_row_of(const delta_rule_output& to, std::int64_t token, const float* row,
                    std::int64_t count) const {
    if (to.data == nullptr) return;
    store_row<isa_type>(to, row_of(to, entry_, token, head_), count, row);
  }

  /// read = decay key: its gradient is a part of theirs.
  void fold_read(const token_rows& of, const token_rows& d_of) const {
    for (std::int64_t c = 0; c < args_.key_dim; ++c) {
      d_of.key[c] += of.decay[c] * d_of.read[c];
      d_of.decay[c] += of.key[c] * d_of.read[c];
    }
  }

  void store_beta(std::int64_t token, float d_beta) const {
    if (args_.beta_is_raw) {
      const float share = sigmoid<isa_type>(
          element_at<isa_type>(args_.beta, row_of(args_.beta, entry_, token, head_)));
      d_beta *= args_.beta_most * share * (1.0f - share);
    }
    store_element<isa_type>(args_.d_beta, row_of(args_.d_beta, entry_, token, head_), d_beta);
  }

  void store_low_rank(std::int64_t token, const token_rows& of, const token_rows& d_of) const {
    if (args_.update == delta_rule_update::multiplicative) {
      // read = -kk, write = kk rate.
      load_row<isa_type>(args_.write, row_of(args_.write, entry_, token, head_), args_.key_dim,
                         row_);
      for (std::int64_t c = 0; c < args_.key_dim; ++c) {
        d_of.read[c] = d_of.write[c] * row_[c] - d_of.read[c];
        d_of.write[c] *= -of.read[c];
      }
    }
    store_row_of(args_.d_read, token, d_of.read, args_.key_dim);
    store_row_of(args_.d_write, token, d_of.write, args_.key_dim);
  }

  void store_decay(std::int64_t token, const float* d_log_decay) const {
    const delta_rule_input& decay = args_.decay;
    const std::int64_t at = row_of(decay, entry_, token, head_), channels = args_.key_dim;
    if (args_.decay_has_channels) {
      load_row<isa_type>(decay, at, channels, row_);
      for (std::int64_t c = 0; c < channels; ++c) {
        row_[c] = through_gate(row_[c], c, d_log_decay[c]);
      }
      return store_row_of(args_.d_decay, token, row_, channels);
    }
    float sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += d_log_decay[c];
    row_[0] = through_gate(element_at<isa_type>(decay, at), 0, sum);
    store_row_of(args_.d_decay, token, row_, 1);
  }

  /// The gradient of a raw gate from that of its log decay.
  float through_gate(float x, std::int64_t channel, float d_log_decay) const {
    if (!gate_.raw) return d_log_decay;
    const gate_slopes slopes = gate_.slopes(x, channel);
    const float d_raw = slopes.by_raw * d_log_decay;
    *sums_.a_log += static_cast<double>(slopes.by_a_log * d_log_decay);
    sums_.bias[channel] += static_cast<double>(d_raw);
    return d_raw;
  }

  const delta_rule_kernel_args& args_;
  head_gate<isa_type> gate_;
  gate_sums sums_;
  float* row_;
  std::int64_t entry_, head_;
};

/// Stores the gradient of q or k of a token from that of what steps took, `d_row`, which is used
/// up. `row` is scratch.
template <class Row>
void store_operand_gradient(const delta_rule_kernel_args& args, const delta_rule_input& operand,
                            const delta_rule_output& to, std::int64_t entry, std::int64_t token,
                            std::int64_t head, float* d_row, float* row) {
  using isa_type = typename traits<Row>::isa_type;
  using vec = typename traits<Row>::vec;
  const std::int64_t channels = args.key_dim;
  if (args.normalizes) {
    load_row<isa_type>(operand, row_of(operand, entry, token, head), channels, row);
    if (args.activates) activate<isa_type>(row, channels);
    const float inverse = inverse_length<isa_type>(row, channels);
    scale_row<isa_type>(row, channels, inverse);
    auto sum = vec::zero();
    for (std::int64_t c = 0; c < channels; c += vec::width) {
      sum = vec::fma(vec::load(row + c), vec::load(d_row + c), sum);
    }
    const auto along = vec::broadcast(-vec::sum(sum)), by = vec::broadcast(inverse);
    for (std::int64_t c = 0; c < channels; c += vec::width) {
      vec::store(d_row + c,
                 vec::mul(by, vec::fma(along, vec::load(row + c), vec::load(d_row + c))));
    }
  }
  if (args.activates) {
    load_row<isa_type>(operand, row_of(operand, entry, token, head), channels, row);
    activate_back<isa_type>(row, channels, d_row);
  }
  store_row<isa_type>(to, row_of(to, entry, token, head), channels, d_row);
}

}  // namespace tessera::kernels::delta_rule::cpu
