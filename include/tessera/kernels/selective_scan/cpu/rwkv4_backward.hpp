// Gradients of an rwkv4 call. Sums are computed again chunk by chunk, as states are
// (state_space_backward.hpp); a work item owns a block of channels of some of the sequences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/rwkv4_block.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::selective_scan::cpu {

template <class Kernel>
class rwkv4_backward {
  using block_type = rwkv4_block<Kernel>;
  using isa_type = typename block_type::isa_type;
  using vec = typename block_type::vec;
  using reg = typename vec::reg;
  static constexpr std::int64_t width = block_type::width;
  static constexpr std::int64_t chunk_tokens = 64;

 public:
  explicit rwkv4_backward(const rwkv4_kernel_args& args) : args_(args) {}

  std::size_t workspace_bytes(int threads) const {
    return sums_bytes() + static_cast<std::size_t>(threads) * thread_bytes();
  }

  void run(std::byte* workspace, int threads) const {
    const std::int64_t blocks = block_type::blocks(args_.channels);
    std::byte* const of_threads = workspace + sums_bytes();
    prim::parallel_items<isa_type>(parts() * blocks, threads, [&](std::int64_t item, int thread) {
      thread_memory own(args_, of_threads + static_cast<std::size_t>(thread) * thread_bytes());
      own.total = sums_at(workspace, item / blocks, item % blocks);
      clear(own.total);
      for (std::int64_t sequence = item / blocks; sequence < args_.sequences.count;
           sequence += parts()) {
        own.block.enter(sequence, item % blocks);
        walk(own, tokens_of<isa_type>(args_.sequences, sequence));
      }
    });
    prim::parallel_items<isa_type>(blocks, threads,
                                   [&](std::int64_t block, int) { add_up(workspace, block); });
    for (const channel_rows* rows : {&args_.d_k, &args_.d_v}) {
      clear_unused<isa_type>(*rows, args_.sequences, args_.channels, threads);
    }
  }

 private:
  /// What a block adds to the gradients of w, times 1 / -exp(w), and of u.
  struct parameter_rows {
    float* decay = nullptr;
    float* bonus = nullptr;
  };

  struct thread_memory {
    thread_memory(const rwkv4_kernel_args& args, std::byte* base)
        : carver(base), block(args, carver), gradients(block_type::carve_sums(carver)) {
      const std::int64_t tokens = args.sequences.tokens;
      checkpoints = carver.take((tokens + chunk_tokens - 1) / chunk_tokens * 3 * width);
      chunk = carver.take((std::min(tokens, chunk_tokens) + 1) * 3 * width);
      chunk_sums = {carver.take(width), carver.take(width)};
      for (float** row : {&d_out, &d_k, &d_v}) *row = carver.take(width);
    }
    prim::float_carver carver;
    block_type block;
    rwkv4_sums gradients;  ///< of the sums behind the token
    float* checkpoints;    ///< the sums in front of each chunk
    float* chunk;          ///< those in front of each token of a chunk, and behind the last
    parameter_rows chunk_sums{}, total{};
    float *d_out = nullptr, *d_k = nullptr, *d_v = nullptr;
  };
  std::size_t thread_bytes() const { return thread_memory(args_, nullptr).carver.bytes(); }

  /// Sequences n, n + parts, ... are one work item with each block.
  std::int64_t parts() const { return std::min<std::int64_t>(args_.sequences.count, 16); }
  std::size_t sums_bytes() const {
    const std::int64_t rows = parts() * block_type::blocks(args_.channels) * 2;
    return static_cast<std::size_t>(rows * width) * sizeof(float);
  }
  parameter_rows sums_at(std::byte* workspace, std::int64_t part, std::int64_t block) const {
    const std::int64_t index = part * block_type::blocks(args_.channels) + block;
    float* const first = reinterpret_cast<float*>(workspace) + index * 2 * width;
    return {first, first + width};
  }
  static rwkv4_sums sums_of(float* rows, std::int64_t index) {
    float* const first = rows + index * 3 * width;
    return {first, first + width, first + 2 * width};
  }

  void walk(thread_memory& own, const token_range& tokens) const {
    leave_checkpoints(own, tokens);
    if (args_.d_final_state.data != nullptr) {
      own.block.load_sums(args_.d_final_state, own.gradients);
    } else {
      for (float* row : {own.gradients.alpha, own.gradients.beta, own.gradients.eps}) {
        std::fill(row, row + width, 0.0f);
      }
    }
    const std::int64_t length = tokens.end - tokens.begin;
    for (std::int64_t chunk = (length + chunk_tokens - 1) / chunk_tokens - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = tokens.begin + chunk * chunk_tokens;
      const std::int64_t end = std::min(begin + chunk_tokens, tokens.end);
      compute_chunk(own, tokens.entry, begin, end, chunk);
      clear(own.chunk_sums);
      for (std::int64_t token = end - 1; token >= begin; --token) {
        step_back(own, tokens.entry, token, sums_of(own.chunk, token - begin));
      }
      add(own.chunk_sums.decay, own.total.decay);
      add(own.chunk_sums.bonus, own.total.bonus);
    }
    own.block.store_sums(args_.d_initial_state, own.gradients);
  }

  void leave_checkpoints(thread_memory& own, const token_range& tokens) const {
    const rwkv4_sums now = sums_of(own.chunk, 0);
    own.block.load_sums(args_.initial_state, now);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      const std::int64_t at = token - tokens.begin;
      if (at % chunk_tokens == 0) {
        std::copy(now.alpha, now.alpha + 3 * width,
                  own.checkpoints + at / chunk_tokens * 3 * width);
      }
      own.block.load_token(tokens.entry, token);
      update(own.block, now, now);
    }
  }

  void compute_chunk(thread_memory& own, std::int64_t entry, std::int64_t begin, std::int64_t end,
                     std::int64_t chunk) const {
    const float* const first = own.checkpoints + chunk * 3 * width;
    std::copy(first, first + 3 * width, own.chunk);
    for (std::int64_t token = begin; token < end; ++token) {
      own.block.load_token(entry, token);
      update(own.block, sums_of(own.chunk, token - begin), sums_of(own.chunk, token - begin + 1));
    }
  }

  static void update(const block_type& block, const rwkv4_sums& from, const rwkv4_sums& to) {
    for (std::int64_t at = 0; at < block.columns(); at += vec::width) block.update(from, to, at);
  }

  void step_back(thread_memory& own, std::int64_t entry, std::int64_t token,
                 const rwkv4_sums& before) const {
    const block_type& block = own.block;
    own.block.load_token(entry, token);
    load_row<isa_type>(args_.d_out, block.row_at(args_.d_out, entry, token), block.columns(),
                       own.d_out);
    for (std::int64_t at = 0; at < block.columns(); at += vec::width) {
      channels_back(own, before, at);
    }
    store_row<isa_type>(args_.d_k, block.row_at(args_.d_k, entry, token), block.columns(), own.d_k);
    store_row<isa_type>(args_.d_v, block.row_at(args_.d_v, entry, token), block.columns(), own.d_v);
  }

  /// The gradients of a register of channels: through the output, then through the new sums, whose
  /// maximum takes the gradient of eps (half of it each where both are the maximum).
  TESSERA_INLINE void channels_back(thread_memory& own, const rwkv4_sums& before,
                                    std::int64_t at) const {
    const reg one = vec::broadcast(1.0f), zero = vec::zero();
    const reg alpha = vec::load(before.alpha + at), beta = vec::load(before.beta + at);
    const reg eps = vec::load(before.eps + at);
    const reg k = vec::load(own.block.k() + at), v = vec::load(own.block.v() + at);

    const reg key = vec::add(vec::load(own.block.bonus() + at), k), tau = vec::max(eps, key);
    const reg of_sums = prim::decay_of<isa_type>(vec::sub(eps, tau));
    const reg of_token = prim::decay_of<isa_type>(vec::sub(key, tau));
    const reg below = vec::fma(of_sums, beta, of_token);
    const reg y = vec::div(vec::fma(of_sums, alpha, vec::mul(of_token, v)), below);
    const reg d_above = vec::div(vec::load(own.d_out + at), below);
    const reg d_below = vec::sub(zero, vec::mul(d_above, y));
    const reg d_key = vec::mul(of_token, vec::fma(v, d_above, d_below));

    const reg decayed = vec::add(vec::load(own.block.decay() + at), eps);
    const reg most = vec::max(decayed, k);
    const reg kept = prim::decay_of<isa_type>(vec::sub(decayed, most));
    const reg added = prim::decay_of<isa_type>(vec::sub(k, most));
    const reg d_alpha = vec::load(own.gradients.alpha + at);
    const reg d_beta = vec::load(own.gradients.beta + at);
    const reg of_kept = vec::mul(kept, vec::fma(alpha, d_alpha, vec::mul(beta, d_beta)));
    const reg of_added = vec::mul(added, vec::fma(v, d_alpha, d_beta));
    const reg d_most = vec::sub(vec::load(own.gradients.eps + at), vec::add(of_kept, of_added));
    const reg half = vec::broadcast(0.5f);
    const reg share = vec::select_below(decayed, k, zero, vec::select_below(k, decayed, one, half));
    const reg d_decayed = vec::fma(share, d_most, of_kept);

    vec::store(own.d_k + at,
               vec::add(vec::add(d_key, of_added), vec::mul(vec::sub(one, share), d_most)));
    vec::store(own.d_v + at, vec::fma(of_token, d_above, vec::mul(added, d_alpha)));
    vec::store(own.gradients.alpha + at, vec::fma(of_sums, d_above, vec::mul(kept, d_alpha)));
    vec::store(own.gradients.beta + at, vec::fma(of_sums, d_below, vec::mul(kept, d_beta)));
    const reg of_read = vec::fma(alpha, d_above, vec::mul(beta, d_below));
    vec::store(own.gradients.eps + at, vec::fma(of_sums, of_read, d_decayed));
    float* const decay = own.chunk_sums.decay + at;
    float* const bonus = own.chunk_sums.bonus + at;
    vec::store(decay, vec::add(vec::load(decay), d_decayed));
    vec::store(bonus, vec::add(vec::load(bonus), d_key));
  }

  /// Parts become the gradients of a block's parameters; d_w = -exp(w) d(-exp(w)).
  void add_up(std::byte* workspace, std::int64_t block) const {
    const std::int64_t first = block * width;
    const std::int64_t columns = std::min(width, args_.channels - first);
    for (std::int64_t column = 0; column < columns; ++column) {
      double decay = 0, bonus = 0;
      for (std::int64_t part = 0; part < parts(); ++part) {
        const parameter_rows rows = sums_at(workspace, part, block);
        decay += static_cast<double>(rows.decay[column]);
        bonus += static_cast<double>(rows.bonus[column]);
      }
      const std::int64_t channel = first + column;
      const float w = element_at<isa_type>(args_.w, channel * args_.w.channel);
      const auto rate =
          static_cast<double>(-vec::first(prim::precise_exp_of<isa_type>(vec::broadcast(w))));
      store_sum<isa_type>(args_.d_w, channel * args_.d_w.channel, rate * decay);
      store_sum<isa_type>(args_.d_u, channel * args_.d_u.channel, bonus);
    }
  }

  static void clear(const parameter_rows& rows) {
    std::fill(rows.decay, rows.decay + width, 0.0f);
    std::fill(rows.bonus, rows.bonus + width, 0.0f);
  }
  static void add(const float* terms, float* sums) {
    for (std::int64_t at = 0; at < width; at += vec::width) {
      vec::store(sums + at, vec::add(vec::load(sums + at), vec::load(terms + at)));
    }
  }

  const rwkv4_kernel_args& args_;
};

}  // namespace tessera::kernels::selective_scan::cpu
