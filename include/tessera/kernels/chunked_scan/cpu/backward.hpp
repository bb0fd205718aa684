// Gradients of every operand. A work item is a sequence and a head of k and v with the heads that
// read it. It goes forward once and keeps the states before each chunk of tokens; then chunk by
// chunk from the last one, it makes the states of a chunk again and gives its tokens back:
//
//   for each chunk, from the last { for each head of the group { for each block of values {
//     states of the chunk; for each token, from the last { gradients; state's gradient } } } }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/backward_scratch.hpp>
#include <tessera/kernels/chunked_scan/cpu/backward_step.hpp>
#include <tessera/kernels/chunked_scan/cpu/bonus.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_backward.hpp>
#include <tessera/kernels/chunked_scan/cpu/rows.hpp>
#include <tessera/kernels/chunked_scan/cpu/states.hpp>
#include <tessera/kernels/chunked_scan/cpu/step.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// One work item.
template <class Kernel, chunked_scan_decay Decay, state_read Read>
class backward_item {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using scratch = backward_scratch<Kernel>;
  static constexpr std::int64_t chunk_tokens = chunked_scan_chunk;
  static constexpr bool decays = Decay != chunked_scan_decay::none;
  static constexpr bool value_decays = Decay == chunked_scan_decay::keys_and_values;

 public:
  backward_item(const chunked_scan_kernel_args& args, const scratch& memory, const sequence& one,
                std::int64_t kv_head, double* d_u)
      : args_(args),
        memory_(memory),
        size_(memory.size),
        one_(one),
        kv_head_(kv_head),
        chunks_((one_.length + chunk_tokens - 1) / chunk_tokens),
        d_u_(d_u) {}

  void run() const {
    if constexpr (Read == state_read::before) {
      load_part<Kernel>(args_.u, kv_head_ * args_.u.head, args_.keys, 1.0f, size_.keys, memory_.u);
      std::fill_n(d_u_, size_.keys, 0.0);
    }
    for (std::int64_t member = 0; member < size_.group; ++member) keep_states(member);
    for_each_tile([&](std::int64_t member, std::int64_t block, const state_place& place) {
      load_state<Kernel>(args_.d_final_state, place, args_.keys, size_.keys,
                         memory_.gradient_of(member, block));
    });
    for (std::int64_t chunk = chunks_ - 1; chunk >= 0; --chunk) {
      std::fill_n(memory_.d_k, chunk_tokens * size_.keys, 0.0f);
      std::fill_n(memory_.d_v, chunk_tokens * size_.values, 0.0f);
      for (std::int64_t member = 0; member < size_.group; ++member) give_back_chunk(chunk, member);
      store_rows(args_.d_k, chunk, kv_head_, args_.keys, memory_.d_k, size_.keys);
      store_rows(args_.d_v, chunk, kv_head_, args_.values, memory_.d_v, size_.values);
    }
    for_each_tile([&](std::int64_t member, std::int64_t block, const state_place& place) {
      store_state<Kernel>(args_.d_initial_state, place, args_.keys,
                          memory_.gradient_of(member, block));
    });
  }

 private:
  std::int64_t head_of(std::int64_t member) const { return kv_head_ * size_.group + member; }
  std::int64_t tokens_of(std::int64_t chunk) const {
    return std::min(one_.length - chunk * chunk_tokens, chunk_tokens);
  }
  state_place place_of_tile(std::int64_t member, std::int64_t block) const {
    const std::int64_t value = block * shape::block;
    return {one_.number, head_of(member), value,
            std::min<std::int64_t>(args_.values - value, shape::block)};
  }
  template <class Visit>
  void for_each_tile(const Visit& visit) const {
    for (std::int64_t member = 0; member < size_.group; ++member) {
      for (std::int64_t block = 0; block < size_.blocks; ++block) {
        visit(member, block, place_of_tile(member, block));
      }
    }
  }

  /// The states of a head before each chunk.
  void keep_states(std::int64_t member) const {
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      for (std::int64_t block = 0; chunk == 0 && block < size_.blocks; ++block) {
        load_state<Kernel>(args_.initial_state, place_of_tile(member, block), args_.keys,
                           size_.keys, memory_.checkpoint(0, member, block));
      }
      if (chunk + 1 == chunks_) return;
      load_updates(chunk, member);
      for (std::int64_t block = 0; block < size_.blocks; ++block) {
        float* const next = memory_.checkpoint(chunk + 1, member, block);
        const float* from = memory_.checkpoint(chunk, member, block);
        for (std::int64_t at = 0; at < chunk_tokens; ++at) {
          take<Kernel, Decay, state_read::none>(token_at(at, block), size_.keys, from, next,
                                                nullptr);
          from = next;
        }
      }
    }
  }

  /// Rows of a chunk that states are made of.
  void load_updates(std::int64_t chunk, std::int64_t member) const {
    const std::int64_t head = head_of(member);
    for (std::int64_t at = 0; at < tokens_of(chunk); ++at) {
      const std::int64_t step = chunk * chunk_tokens + at;
      const std::int64_t keys = at * size_.keys, values = at * size_.values;
      load_part<Kernel>(args_.k, place_of(args_.k, one_, step, kv_head_), args_.keys, 1.0f,
                        size_.keys, memory_.k + keys);
      load_part<Kernel>(args_.v, place_of(args_.v, one_, step, kv_head_), args_.values, 1.0f,
                        size_.values, memory_.v + values);
      if constexpr (decays) {
        load_key_decays<Kernel>(args_, one_, step, head, size_.keys, memory_.key_decay + keys);
      }
      if constexpr (value_decays) {
        load_value_decays<Kernel>(args_, one_, step, head, 0, args_.values, size_.values,
                                  memory_.value_decay + values);
      }
    }
  }

  /// Rows of a chunk that read states.
  void load_reads(std::int64_t chunk, std::int64_t member) const {
    const std::int64_t head = head_of(member);
    for (std::int64_t at = 0; at < tokens_of(chunk); ++at) {
      const std::int64_t step = chunk * chunk_tokens + at;
      load_part<Kernel>(args_.q, place_of(args_.q, one_, step, head), args_.keys, args_.scale,
                        size_.keys, memory_.q + at * size_.keys);
      load_part<Kernel>(args_.d_out, place_of(args_.d_out, one_, step, head), args_.values, 1.0f,
                        size_.values, memory_.d_out + at * size_.values);
    }
  }

  token_rows token_at(std::int64_t at, std::int64_t block) const {
    const std::int64_t keys = at * size_.keys;
    const std::int64_t values = at * size_.values + block * shape::block;
    return {memory_.q + keys, memory_.k + keys, memory_.key_decay + keys, memory_.v + values,
            memory_.value_decay + values};
  }
  token_gradients gradients_at(std::int64_t at, std::int64_t block) const {
    const std::int64_t keys = at * size_.keys;
    const std::int64_t values = at * size_.values + block * shape::block;
    return {memory_.d_q + keys, memory_.d_k + keys, memory_.d_key_decay + keys,
            memory_.d_v + values, memory_.d_value_decay + values};
  }

  void give_back_chunk(std::int64_t chunk, std::int64_t member) const {
    load_updates(chunk, member);
    load_reads(chunk, member);
    std::fill_n(memory_.d_q, chunk_tokens * size_.keys, 0.0f);
    std::fill_n(memory_.d_key_decay, chunk_tokens * size_.keys, 0.0f);
    const std::int64_t count = tokens_of(chunk);
    for (std::int64_t block = 0; block < size_.blocks; ++block) {
      const auto state = [&](std::int64_t at) { return memory_.states + at * size_.tile; };
      std::copy_n(memory_.checkpoint(chunk, member, block), size_.tile, state(0));
      for (std::int64_t at = 0; at < count; ++at) {
        take<Kernel, Decay, state_read::none>(token_at(at, block), size_.keys, state(at),
                                              state(at + 1), nullptr);
      }
      for (std::int64_t at = count - 1; at >= 0; --at) {
        give_back<Kernel, Decay, Read>(token_at(at, block),
                                       memory_.d_out + at * size_.values + block * shape::block,
                                       size_.keys, state(at), state(at + 1),
                                       memory_.gradient_of(member, block), gradients_at(at, block));
      }
    }
    if constexpr (Read == state_read::before) give_back_bonus(count);
    store_rows(args_.d_q, chunk, head_of(member), args_.keys, memory_.d_q, size_.keys, args_.scale);
    store_decays(chunk, member);
  }

  /// What tokens have of their own values; d_u is summed chunk by chunk in double.
  void give_back_bonus(std::int64_t count) const {
    std::fill_n(memory_.d_u, size_.keys, 0.0f);
    for (std::int64_t at = 0; at < count; ++at) {
      add_bonus_gradients<Kernel>(token_at(at, 0), memory_.d_out + at * size_.values, memory_.u,
                                  size_.keys, size_.values, gradients_at(at, 0), memory_.d_u);
    }
    for (std::int64_t key = 0; key < size_.keys; ++key) {
      d_u_[key] += static_cast<double>(memory_.d_u[key]);
    }
  }

  void store_decays(std::int64_t chunk, std::int64_t member) const {
    const std::int64_t head = head_of(member);
    for (std::int64_t at = 0; args_.d_g.data != nullptr && at < tokens_of(chunk); ++at) {
      const float* const row = memory_.d_key_decay + at * size_.keys;
      float sum = 0.0f;
      for (std::int64_t key = 0; key < args_.keys; ++key) sum += row[key];
      store_number<Kernel>(args_.d_g, place_of(args_.d_g, one_, chunk * chunk_tokens + at, head),
                           sum);
    }
    // The rows of k have done their work.
    for (std::int64_t at = 0;
         args_.raw_decay && args_.d_gk.data != nullptr && at < tokens_of(chunk); ++at) {
      through_raw_decay<Kernel>(args_, one_, chunk * chunk_tokens + at, head, size_.keys, memory_.k,
                                memory_.d_key_decay + at * size_.keys);
    }
    store_rows(args_.d_gk, chunk, head, args_.keys, memory_.d_key_decay, size_.keys);
    store_rows(args_.d_gv, chunk, head, args_.values, memory_.d_value_decay, size_.values);
  }

  /// Rows of a chunk, if somebody wants them.
  void store_rows(const chunked_scan_rows& rows, std::int64_t chunk, std::int64_t head,
                  std::int64_t columns, const float* from, std::int64_t padded,
                  float factor = 1.0f) const {
    if (rows.data == nullptr) return;
    for (std::int64_t at = 0; at < tokens_of(chunk); ++at) {
      const std::int64_t step = chunk * chunk_tokens + at;
      store_part<Kernel>(rows, place_of(rows, one_, step, head), columns, from + at * padded,
                         factor);
    }
  }

  const chunked_scan_kernel_args& args_;
  const scratch& memory_;
  const backward_extents<Kernel>& size_;
  const sequence& one_;
  std::int64_t kv_head_, chunks_;
  double* d_u_;
};

template <class Kernel, chunked_scan_decay Decay, state_read Read>
void launch_backward(const chunked_scan_kernel_args& args, std::byte* memory, int threads,
                     int most_threads) {
  using isa_type = typename traits<Kernel>::isa_type;
  const backward_extents<Kernel> size(args);
  const chunk_extents<Kernel> of_chunks(args, most_threads);
  const auto of_thread = static_cast<std::int64_t>(backward_bytes_of_thread(size, of_chunks));
  auto* const d_u = reinterpret_cast<double*>(memory + most_threads * of_thread);
  const std::int64_t together = of_chunks.together;
  const std::int64_t parts = (args.kv_heads + together - 1) / together;
  prim::parallel_items<isa_type>(
      args.sequences * parts, threads, [&](std::int64_t item, int thread) {
        const std::int64_t number = item / parts, first = item % parts * together;
        const sequence one = sequence_of<isa_type>(args, number);
        std::byte* const own = memory + thread * of_thread;
        const auto sums_of = [&](std::int64_t kv_head) {
          return d_u + (number * args.kv_heads + kv_head) * size.keys;
        };
        if constexpr (goes_back_by_chunks<Decay>(chunk_tokens)) {
          if (goes_back_by_chunks<Decay>(one.length)) {
            const chunk_scratch<Kernel> scratch(of_chunks, own);
            constexpr bool decays = Decay != chunked_scan_decay::none;
            return chunk_backward_item<Kernel, decays, Read>(args, scratch, one, first,
                                                             sums_of(first))
                .run();
          }
        }
        const backward_scratch<Kernel> scratch(size, own);
        const std::int64_t end = std::min(first + together, args.kv_heads);
        for (std::int64_t kv_head = first; kv_head < end; ++kv_head) {
          backward_item<Kernel, Decay, Read>(args, scratch, one, kv_head, sums_of(kv_head)).run();
        }
      });
  if constexpr (Read == state_read::before) sum_bonus_gradients<Kernel>(args, d_u, size.keys);
  clear_unused<Kernel>(args, args.d_q, args.heads, args.keys);
  clear_unused<Kernel>(args, args.d_k, args.kv_heads, args.keys);
  clear_unused<Kernel>(args, args.d_v, args.kv_heads, args.values);
  clear_unused<Kernel>(args, args.d_g, args.heads, 1);
  clear_unused<Kernel>(args, args.d_gk, args.heads, args.keys);
  clear_unused<Kernel>(args, args.d_gv, args.heads, args.values);
}

}  // namespace tessera::kernels::chunked_scan::cpu
