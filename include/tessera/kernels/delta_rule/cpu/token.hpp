// What a step takes of its token, as floats: the vectors over the channels of the keys that read,
// decay and write a state. Rows end with zeros where their last register ends.
//
// | update | reads with | writes |
// |---|---|---|
// | delta | decay k: what the decayed state holds for k | k |
// | low_rank, multiplicative | a | b, and k |
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/decay_factor.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/ask_for.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Rows of floats in scratch memory, `padded(key_dim)` each.
struct token_rows {
  float* query = nullptr;
  float* key = nullptr;
  float* decay = nullptr;
  float* read = nullptr;
  float* write = nullptr;

  static constexpr std::int64_t count = 5;
  static token_rows at(float* memory, std::int64_t key_dim) {
    const std::int64_t row = padded(key_dim);
    return {memory, memory + row, memory + 2 * row, memory + 3 * row, memory + 4 * row};
  }
};

/// 1 / sqrt(sum x^2 + 1e-6).
template <class Isa>
inline float inverse_length(const float* row, std::int64_t count) {
  using vec = prim::simd<Isa>;
  auto sum = vec::zero();
  for (std::int64_t c = 0; c < count; c += vec::width) {
    const auto x = vec::load(row + c);
    sum = vec::fma(x, x, sum);
  }
  return 1.0f / std::sqrt(vec::sum(sum) + 1e-6f);
}

template <class Isa>
inline void scale_row(float* row, std::int64_t count, float by) {
  using vec = prim::simd<Isa>;
  for (std::int64_t c = 0; c < count; c += vec::width) {
    vec::store(row + c, vec::mul(vec::load(row + c), vec::broadcast(by)));
  }
}

/// Makes the rows of the tokens of one value head.
template <class Row>
class token_reader {
 public:
  using isa_type = typename traits<Row>::isa_type;
  using vec = typename traits<Row>::vec;
  using element = typename traits<Row>::element;

  token_reader(const delta_rule_kernel_args& args, std::int64_t entry, std::int64_t head)
      : args_(args),
        gate_(args.gate, head),
        entry_(entry),
        head_(head),
        key_head_(head / (args.value_heads / args.key_heads)) {}

  void read(std::int64_t token, const token_rows& rows) const {
    read_query(token, rows);
    read_key(token, rows);
    if (args_.update != delta_rule_update::delta) return read_low_rank(token, rows);
    for (std::int64_t c = 0; c < args_.key_dim; c += vec::width) {
      vec::store(rows.read + c, vec::mul(vec::load(rows.decay + c), vec::load(rows.key + c)));
    }
  }
  void read_query(std::int64_t token, const token_rows& rows) const {
    load(args_.q, token, rows.query);
    float of_query = args_.scale;
    if (args_.normalizes) of_query *= inverse_length<isa_type>(rows.query, args_.key_dim);
    scale_row<isa_type>(rows.query, args_.key_dim, of_query);
  }
  /// The key and its decay, whose logarithms are added to `log_decays`, if it is there.
  void read_key(std::int64_t token, const token_rows& rows, float* log_decays = nullptr) const {
    load(args_.k, token, rows.key);
    if (args_.normalizes) {
      scale_row<isa_type>(rows.key, args_.key_dim,
                          inverse_length<isa_type>(rows.key, args_.key_dim));
    }
    read_decay(token, rows, log_decays);
  }

  /// Of updates other than the delta rule.
  void read_low_rank(std::int64_t token, const token_rows& rows) const {
    load(args_.read, token, rows.read);
    load(args_.write, token, rows.write);
    if (args_.update == delta_rule_update::low_rank) return;
    for (std::int64_t c = 0; c < args_.key_dim; c += vec::width) {
      const auto read = vec::load(rows.read + c);
      vec::store(rows.write + c, vec::mul(read, vec::load(rows.write + c)));
      vec::store(rows.read + c, vec::sub(vec::zero(), read));
    }
  }

  /// Asks for the rows of a token ahead of `read`, and for those of its answer: stores that wait
  /// for memory would keep those of the state waiting.
  TESSERA_INLINE void ask_for(std::int64_t token) const {
    ask_for(args_.q, token, key_head_, args_.key_dim);
    ask_for(args_.k, token, key_head_, args_.key_dim);
    ask_for(args_.v, token, head_, args_.value_dim);
    ask_for(args_.out, token, head_, args_.value_dim);
    if (args_.decay_has_channels) ask_for(args_.decay, token, head_, args_.key_dim);
    ask_for(args_.read, token, key_head_, args_.key_dim);
    ask_for(args_.write, token, key_head_, args_.key_dim);
  }

  /// 0 of updates that have none.
  float beta(std::int64_t token) const {
    if (args_.beta.data == nullptr) return 0;
    return beta_of<isa_type>(
        args_, element_at<isa_type>(args_.beta, row_of(args_.beta, entry_, token, head_)));
  }

 private:
  void load(const delta_rule_input& from, std::int64_t token, float* to) const {
    load_row<isa_type>(
        static_cast<const element*>(from.data) + row_of(from, entry_, token, key_head_),
        args_.key_dim, to);
    if (args_.activates) activate<isa_type>(to, args_.key_dim);
  }

  template <class Rows>
  TESSERA_INLINE void ask_for(const Rows& rows, std::int64_t token, std::int64_t head,
                              std::int64_t count) const {
    if (rows.data == nullptr) return;
    const auto size = static_cast<std::int64_t>(size_of(rows.type));
    prim::ask_for(
        static_cast<const std::byte*>(rows.data) + row_of(rows, entry_, token, head) * size,
        count * size);
  }

  void read_decay(std::int64_t token, const token_rows& rows, float* log_decays) const {
    const delta_rule_input& decay = args_.decay;
    const std::int64_t channels = args_.key_dim;
    if (decay.data == nullptr) return std::fill_n(rows.decay, padded(channels), 1.0f), void();
    const std::int64_t at = row_of(decay, entry_, token, head_);
    if (!args_.decay_has_channels) {
      const float log_decay = gate_.log_decay(element_at<isa_type>(decay, at), 0);
      std::fill_n(rows.decay, padded(channels),
                  vec::first(recurrence::decay_factor<isa_type>(vec::broadcast(log_decay))));
      for (std::int64_t c = 0; log_decays != nullptr && c < channels; ++c) {
        log_decays[c] += log_decay;
      }
      return;
    }
    load_row<isa_type>(decay, at, channels, rows.decay);
    if (args_.gate.raw) {
      for (std::int64_t c = 0; c < channels; ++c) {
        rows.decay[c] = gate_.log_decay(rows.decay[c], c);
      }
    }
    for (std::int64_t c = 0; c < channels; c += vec::width) {
      const auto log_decay = vec::load(rows.decay + c);
      if (log_decays != nullptr) {
        vec::store(log_decays + c, vec::add(vec::load(log_decays + c), log_decay));
      }
      vec::store(rows.decay + c, recurrence::decay_factor<isa_type>(log_decay));
    }
  }

  const delta_rule_kernel_args& args_;
  head_gate<isa_type> gate_;
  std::int64_t entry_, head_, key_head_;
};

}  // namespace tessera::kernels::delta_rule::cpu
