// The bonus: what a token has of its own value, out += (q . (u k)) v, and its gradients.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/backward_step.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/chunked_scan/cpu/rows.hpp>
#include <tessera/kernels/chunked_scan/cpu/step.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/pair_gradients.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Adds the gradients of a token's bonus; rows are of all keys and values.
template <class Kernel>
void add_bonus_gradients(const token_rows& token, const float* d_out, const float* u,
                         std::int64_t keys, std::int64_t values, const token_gradients& sums,
                         float* d_u) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  auto product = vec::zero();
  const auto bonus = vec::broadcast(bonus_of<Kernel>(token.q, u, token.k, keys));
  for (std::int64_t at = 0; at < values; at += shape::width) {
    const auto out = vec::load(d_out + at);
    product = vec::fma(out, vec::load(token.v + at), product);
    vec::store(sums.v + at, vec::fma(bonus, out, vec::load(sums.v + at)));
  }
  const auto d_bonus = vec::broadcast(vec::sum(product));
  for (std::int64_t at = 0; at < keys; at += shape::width) {
    const auto q = vec::mul(vec::load(token.q + at), d_bonus);
    const auto k = vec::load(token.k + at), of_bonus = vec::load(u + at);
    const auto d_q = vec::mul(d_bonus, of_bonus);
    vec::store(sums.q + at, vec::fma(d_q, k, vec::load(sums.q + at)));
    vec::store(sums.k + at, vec::fma(q, of_bonus, vec::load(sums.k + at)));
    vec::store(d_u + at, vec::fma(q, k, vec::load(d_u + at)));
  }
}

/// Weights of the tokens of a chunk in their own answers.
template <class Kernel>
void add_bonus_weights(const chunk_rows& rows, const float* u, std::int64_t keys) {
  for (int n = 0; n < recurrence::chunk_tokens; ++n) {
    rows.weights[n * (recurrence::chunk_tokens + 1)] =
        bonus_of<Kernel>(rows.q + n * keys, u, rows.k + n * keys, keys);
  }
}

/// Adds the gradients of the bonus of a chunk; products of outputs and values are the diagonal of
/// d_weights, and those of values come with the weights.
template <class Kernel, recurrence::chunk_gradients Wanted>
void add_bonus_gradients(const chunk_rows& rows, const float* u, std::int64_t keys, float scale,
                         double* d_u) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  for (std::int64_t at = 0; at < keys; at += shape::width) {
    const auto of_bonus = vec::load(u + at);
    auto sum = vec::zero();
    for (int n = 0; n < recurrence::chunk_tokens; ++n) {
      const std::int64_t place = n * keys + at;
      const float product = rows.d_weights[n * (recurrence::chunk_tokens + 1)];
      const auto q = vec::load(rows.q + place), k = vec::load(rows.k + place);
      if constexpr (Wanted != recurrence::chunk_gradients::keys) {
        const auto d_bonus = vec::mul(vec::broadcast(product * scale), of_bonus);
        vec::store(rows.d_q + place, vec::fma(d_bonus, k, vec::load(rows.d_q + place)));
      }
      if constexpr (Wanted != recurrence::chunk_gradients::queries) {
        const auto d_key = vec::mul(vec::broadcast(product), q);
        vec::store(rows.d_k + place, vec::fma(d_key, of_bonus, vec::load(rows.d_k + place)));
        sum = vec::fma(d_key, k, sum);
      }
    }
    if constexpr (Wanted != recurrence::chunk_gradients::queries) {
      float sums[shape::width];
      vec::store(sums, sum);
      for (int i = 0; i < shape::width; ++i) d_u[at + i] += static_cast<double>(sums[i]);
    }
  }
}

/// d_u of a head, from its sums over the tokens of each sequence: [sequences][heads][padded].
template <class Kernel>
void sum_bonus_gradients(const chunked_scan_kernel_args& args, const double* sums,
                         std::int64_t padded) {
  if (args.d_u.data == nullptr) return;
  for (std::int64_t head = 0; head < args.heads; ++head) {
    for (std::int64_t key = 0; key < args.keys; ++key) {
      double sum = 0;
      for (std::int64_t n = 0; n < args.sequences; ++n) {
        sum += sums[(n * args.heads + head) * padded + key];
      }
      store_number<Kernel>(args.d_u, head * args.d_u.head + key, static_cast<float>(sum));
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
