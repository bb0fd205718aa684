// What forward and backward rwkv4 kernels share: blocks of channels, a block's parameters, the rows
// of one of its tokens, and a step of its sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// Sums of a block: rows of channels.
struct rwkv4_sums {
  float* alpha = nullptr;
  float* beta = nullptr;
  float* eps = nullptr;
};

/// Channels [first, first + columns) of a sequence.
template <class Kernel>
class rwkv4_block {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  static constexpr std::int64_t width = 64;  ///< channels of a block, at most
  static constexpr float no_key = -1e30f;    ///< eps of sums without terms

  static std::int64_t blocks(std::int64_t channels) { return (channels + width - 1) / width; }

  rwkv4_block(const rwkv4_kernel_args& args, prim::float_carver& memory) : args_(args) {
    for (float** row : {&decay_, &bonus_, &k_, &v_}) *row = memory.take(width);
  }

  static rwkv4_sums carve_sums(prim::float_carver& memory) {
    return {memory.take(width), memory.take(width), memory.take(width)};
  }

  /// Takes the block's parameters over.
  void enter(std::int64_t sequence, std::int64_t block) {
    states_entry_ = states_entry<isa_type>(args_.sequences, sequence);
    first_ = block * width;
    columns_ = std::min(width, args_.channels - first_);
    load_parameter(args_.w, decay_);
    load_parameter(args_.u, bonus_);
    for (std::int64_t at = 0; at < padded<isa_type>(columns_); at += vec::width) {
      vec::store(decay_ + at,
                 vec::sub(vec::zero(), prim::precise_exp_of<isa_type>(vec::load(decay_ + at))));
    }
  }

  void load_token(std::int64_t entry, std::int64_t token) {
    load_row<isa_type>(args_.k, row_at(args_.k, entry, token), columns_, k_);
    load_row<isa_type>(args_.v, row_at(args_.v, entry, token), columns_, v_);
  }

  /// y = (e^(eps - tau) alpha + e^(u + k - tau) v) / (e^(eps - tau) beta + e^(u + k - tau)), tau
  /// being the larger exponent.
  TESSERA_INLINE reg read(const rwkv4_sums& sums, std::int64_t at) const {
    const reg eps = vec::load(sums.eps + at);
    const reg key = vec::add(vec::load(bonus_ + at), vec::load(k_ + at));
    const reg tau = vec::max(eps, key);
    const reg of_sums = prim::decay_of<isa_type>(vec::sub(eps, tau));
    const reg of_token = prim::decay_of<isa_type>(vec::sub(key, tau));
    const reg above =
        vec::fma(of_sums, vec::load(sums.alpha + at), vec::mul(of_token, vec::load(v_ + at)));
    return vec::div(above, vec::fma(of_sums, vec::load(sums.beta + at), of_token));
  }

  /// The sums with the token's key and value, relative to the new maximum; `to` may be `from`.
  TESSERA_INLINE void update(const rwkv4_sums& from, const rwkv4_sums& to, std::int64_t at) const {
    const reg decayed = vec::add(vec::load(decay_ + at), vec::load(from.eps + at));
    const reg k = vec::load(k_ + at);
    const reg eps = vec::max(decayed, k);
    const reg of_sums = prim::decay_of<isa_type>(vec::sub(decayed, eps));
    const reg of_token = prim::decay_of<isa_type>(vec::sub(k, eps));
    vec::store(to.alpha + at, vec::fma(of_sums, vec::load(from.alpha + at),
                                       vec::mul(of_token, vec::load(v_ + at))));
    vec::store(to.beta + at, vec::fma(of_sums, vec::load(from.beta + at), of_token));
    vec::store(to.eps + at, eps);
  }

  /// The sums that the block's sequence starts from.
  void load_sums(const channel_rows& from, const rwkv4_sums& to) const {
    if (from.data == nullptr || states_entry_ == no_states) {
      std::fill(to.alpha, to.alpha + width, 0.0f);
      std::fill(to.beta, to.beta + width, 0.0f);
      std::fill(to.eps, to.eps + width, no_key);
      return;
    }
    float* const rows[3] = {to.alpha, to.beta, to.eps};
    for (std::int64_t row = 0; row < 3; ++row) {
      gather_row<isa_type>(from, sum_at(from, row), from.channel, columns_, rows[row]);
    }
  }
  void store_sums(const channel_rows& to, const rwkv4_sums& from) const {
    if (to.data == nullptr || states_entry_ == no_states) return;
    const float* const rows[3] = {from.alpha, from.beta, from.eps};
    for (std::int64_t row = 0; row < 3; ++row) {
      float* const sums = static_cast<float*>(to.data) + sum_at(to, row);
      for (std::int64_t at = 0; at < columns_; ++at) sums[at * to.channel] = rows[row][at];
    }
  }

  /// The block's channels of a token.
  std::int64_t row_at(const channel_rows& tensor, std::int64_t entry, std::int64_t token) const {
    return entry * tensor.entry + token * tensor.row + first_;
  }
  std::int64_t columns() const { return columns_; }
  // Parameters, and rows of the token.
  const float* decay() const { return decay_; }
  const float* bonus() const { return bonus_; }
  const float* k() const { return k_; }
  const float* v() const { return v_; }

 private:
  void load_parameter(const channel_rows& tensor, float* row) const {
    gather_row<isa_type>(tensor, first_ * tensor.channel, tensor.channel, columns_, row);
  }
  std::int64_t sum_at(const channel_rows& tensor, std::int64_t row) const {
    return states_entry_ * tensor.entry + row * tensor.row + first_ * tensor.channel;
  }

  const rwkv4_kernel_args& args_;
  std::int64_t states_entry_ = 0, first_ = 0, columns_ = 0;
  float *decay_ = nullptr, *bonus_ = nullptr, *k_ = nullptr, *v_ = nullptr;
};

}  // namespace tessera::kernels::selective_scan::cpu
