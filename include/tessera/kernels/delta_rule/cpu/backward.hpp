// Backward: `for each chunk of tokens, the last first { for each value head of a key head { read
// its tokens; for each tile of columns { step through the chunk again; step back }; gates }; q and
// k }`. A work item is a sequence and key head, for its value heads add to the same gradients of q
// and k.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/backward_scratch.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_backward.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/step_back.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/token_gradient.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// The gradients of one sequence and key head.
template <class Row>
class backward_item {
 public:
  using isa_type = typename traits<Row>::isa_type;
  using element = typename traits<Row>::element;
  using scratch = backward_scratch<Row>;
  static constexpr std::int64_t tile_columns = traits<Row>::config.columns;
  static constexpr std::int64_t chunk = traits<Row>::config.chunk;

  backward_item(const delta_rule_kernel_args& args, const scratch& memory, const sequence& tokens,
                std::int64_t key_head)
      : args_(args),
        memory_(memory),
        tokens_(tokens),
        key_head_(key_head),
        group_(args.value_heads / args.key_heads) {}

  void run(const gate_sums& sums_of_first) const {
    const std::int64_t chunks = (tokens_.length + chunk - 1) / chunk;
    for_each_tile([&](std::int64_t head, std::int64_t column, auto registers) {
      this->template keep_states<registers()>(head, column);
      load_gradient(head, column, registers() * traits<Row>::width);
    });
    for (std::int64_t number = chunks - 1; number >= 0; --number) {
      std::fill_n(memory_.d_shared(0).query, chunk * scratch::shared_floats(args_), 0.0f);
      for (std::int64_t member = 0; member < group_; ++member) {
        const gate_sums sums{sums_of_first.a_log + member * scratch::sums(args_),
                             sums_of_first.bias + member * scratch::sums(args_)};
        go_back(number, key_head_ * group_ + member, sums);
      }
      store_shared(number);
    }
    for_each_tile([&](std::int64_t head, std::int64_t column, auto registers) {
      store_gradient(head, column, registers() * traits<Row>::width);
    });
  }

  /// Zeros for tokens that belong to no sequence.
  void clear() const {
    for (std::int64_t step = 0; step < tokens_.length; ++step) {
      const std::int64_t token = tokens_.token(step);
      for (std::int64_t member = 0; member < group_; ++member) {
        clear_token(token, key_head_ * group_ + member);
      }
      clear_row(args_.d_q, token, key_head_, args_.key_dim);
      clear_row(args_.d_k, token, key_head_, args_.key_dim);
    }
  }

 private:
  std::int64_t steps_of(std::int64_t number) const {
    return std::min(chunk, tokens_.length - number * chunk);
  }
  std::int64_t columns_from(std::int64_t column) const {
    return std::min(tile_columns, args_.value_dim - column);
  }
  /// Number of a tile among those of the item.
  std::int64_t tile_of(std::int64_t head, std::int64_t column) const {
    return (head - key_head_ * group_) * scratch::tiles(args_) + column / tile_columns;
  }

  template <class Body>
  void for_each_tile(const Body& body) const {
    for (std::int64_t head = key_head_ * group_; head < (key_head_ + 1) * group_; ++head) {
      for_each_tile_of(head,
                       [&](std::int64_t column, auto registers) { body(head, column, registers); });
    }
  }
  template <class Body>
  void for_each_tile_of(std::int64_t, const Body& body) const {
    for (std::int64_t column = 0; column < args_.value_dim; column += tile_columns) {
      with_registers<Row>(columns_from(column), [&](auto registers) { body(column, registers); });
    }
  }

  void clear_row(const delta_rule_output& to, std::int64_t token, std::int64_t head,
                 std::int64_t count) const {
    float* const zeros = memory_.row;
    std::fill_n(zeros, count, 0.0f);
    store_row<isa_type>(to, row_of(to, tokens_.entry, token, head), count, zeros);
  }
  void clear_token(std::int64_t token, std::int64_t head) const {
    gate_gradients<Row>(args_, tokens_.entry, head, {}, memory_.row).clear(token);
    clear_row(args_.d_v, token, head, args_.value_dim);
  }

  void load_values(const delta_rule_input& from, std::int64_t step, std::int64_t head,
                   std::int64_t column, std::int64_t pitch, float* to) const {
    std::fill_n(to, pitch, 0.0f);
    load_row<isa_type>(static_cast<const element*>(from.data) +
                           row_of(from, tokens_.entry, tokens_.token(step), head) + column,
                       columns_from(column), to);
  }

  /// A step of the state, forward: from `before` to `after`, which may be the same.
  template <int Registers>
  void step_forward(std::int64_t step, std::int64_t head, std::int64_t column,
                    const token_rows& rows, float beta, const step_values& values, float* before,
                    float* after) const {
    constexpr std::int64_t pitch = Registers * traits<Row>::width;
    const std::int64_t channels = args_.key_dim;
    if (tokens_.is_padding(step)) {
      if (before != after) std::copy_n(before, channels * pitch, after);
      return;
    }
    if (tokens_.starts_anew(step)) std::fill_n(before, channels * pitch, 0.0f);
    load_values(args_.v, step, head, column, pitch, values.missing);
    if (args_.activates) activate<isa_type>(values.missing, columns_from(column));
    if (args_.update == delta_rule_update::delta) {
      step_again<isa_type, Registers, false>(before, rows, channels, beta, values, after);
    } else {
      step_again<isa_type, Registers, true>(before, rows, channels, beta, values, after);
    }
  }

  /// The states in front of the chunks.
  template <int Registers>
  void keep_states(std::int64_t head, std::int64_t column) const {
    constexpr std::int64_t pitch = Registers * traits<Row>::width;
    const std::int64_t channels = args_.key_dim;
    const token_reader<Row> reader(args_, tokens_.entry, head);
    float* const state = memory_.state(0);
    load_tile<isa_type>(initial_states<isa_type>(args_, tokens_), place(head, column, pitch),
                        state);
    for (std::int64_t step = 0; step < tokens_.length; ++step) {
      if (step % chunk == 0) {
        std::copy_n(state, channels * pitch, memory_.kept(tile_of(head, column), step / chunk));
      }
      float beta = 0;
      if (!tokens_.is_padding(step)) {
        reader.read(tokens_.token(step), memory_.token(0));
        beta = reader.beta(tokens_.token(step));
      }
      step_forward<Registers>(step, head, column, memory_.token(0), beta, memory_.values(0), state,
                              state);
    }
  }

  tile_place place(std::int64_t head, std::int64_t column, std::int64_t pitch) const {
    return {tokens_.slot, head, column, args_.key_dim, columns_from(column), pitch};
  }
  void load_gradient(std::int64_t head, std::int64_t column, std::int64_t pitch) const {
    load_tile<isa_type>(args_.d_last, place(head, column, pitch),
                        memory_.gradient(tile_of(head, column)));
  }
  /// What lies where a sequence starts from 0 counts for nothing.
  void store_gradient(std::int64_t head, std::int64_t column, std::int64_t pitch) const {
    if (args_.d_initial.data == nullptr) return;
    float* const gradient = memory_.gradient(tile_of(head, column));
    if (tokens_.starts_from_zero) std::fill_n(gradient, args_.key_dim * pitch, 0.0f);
    store_tile<isa_type>(gradient, place(head, column, pitch), args_.d_initial);
  }

  /// A chunk of a value head: its tokens, its tiles, and then what its tokens get.
  void go_back(std::int64_t number, std::int64_t head, const gate_sums& sums) const {
    const std::int64_t steps = steps_of(number);
    const token_reader<Row> reader(args_, tokens_.entry, head);
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t step = number * chunk + i;
      if (tokens_.is_padding(step)) continue;
      reader.read(tokens_.token(step), memory_.token(i));
      memory_.beta[i] = reader.beta(tokens_.token(step));
      memory_.d_beta[i] = 0;
    }
    std::fill_n(memory_.d_token(0).query, steps * scratch::token_floats(args_), 0.0f);
    for_each_tile_of(head, [&](std::int64_t column, auto registers) {
      this->template go_back_in_tile<registers()>(number, head, column);
    });
    const gate_gradients<Row> gates(args_, tokens_.entry, head, sums, memory_.row);
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t step = number * chunk + i, token = tokens_.token(step);
      if (tokens_.is_padding(step)) {
        clear_token(token, head);
        continue;
      }
      gates.store(token, memory_.token(i), memory_.d_token(i), memory_.d_beta[i]);
      const shared_rows shared = memory_.d_shared(i);
      for (std::int64_t c = 0; c < args_.key_dim; ++c) {
        shared.query[c] += args_.scale * memory_.d_token(i).query[c];
        shared.key[c] += memory_.d_token(i).key[c];
      }
    }
  }

  template <int Registers>
  void go_back_in_tile(std::int64_t number, std::int64_t head, std::int64_t column) const {
    constexpr std::int64_t pitch = Registers * traits<Row>::width;
    const std::int64_t steps = steps_of(number), tile = tile_of(head, column);
    std::copy_n(memory_.kept(tile, number), args_.key_dim * pitch, memory_.state(0));
    for (std::int64_t i = 0; i < steps; ++i) {
      step_forward<Registers>(number * chunk + i, head, column, memory_.token(i), memory_.beta[i],
                              memory_.values(i), memory_.state(i), memory_.state(i + 1));
    }
    for (std::int64_t i = steps - 1; i >= 0; --i) {
      const std::int64_t step = number * chunk + i;
      if (tokens_.is_padding(step)) continue;
      load_values(args_.d_out, step, head, column, pitch, memory_.d_answer);
      memory_.d_beta[i] += args_.update == delta_rule_update::delta
                               ? this->template back<Registers, false>(i, tile)
                               : this->template back<Registers, true>(i, tile);
      if (args_.activates) {
        load_values(args_.v, step, head, column, pitch, memory_.row);
        activate_back<isa_type>(memory_.row, columns_from(column), memory_.d_values);
      }
      store_row<isa_type>(static_cast<element*>(args_.d_v.data) +
                              row_of(args_.d_v, tokens_.entry, tokens_.token(step), head) + column,
                          columns_from(column), memory_.d_values);
      if (tokens_.starts_anew(step)) {
        std::fill_n(memory_.gradient(tile), args_.key_dim * pitch, 0.0f);
      }
    }
  }
  template <int Registers, bool LowRank>
  float back(std::int64_t i, std::int64_t tile) const {
    return step_back<isa_type, Registers, LowRank>(
        memory_.state(i), memory_.token(i), args_.key_dim, memory_.beta[i], memory_.values(i),
        memory_.d_answer, memory_.gradient(tile), memory_.d_token(i), memory_.d_values);
  }

  /// q and k of a chunk, once all value heads have added to them.
  void store_shared(std::int64_t number) const {
    for (std::int64_t i = 0; i < steps_of(number); ++i) {
      const std::int64_t step = number * chunk + i, token = tokens_.token(step);
      if (tokens_.is_padding(step)) {
        clear_row(args_.d_q, token, key_head_, args_.key_dim);
        clear_row(args_.d_k, token, key_head_, args_.key_dim);
        continue;
      }
      const shared_rows shared = memory_.d_shared(i);
      store_operand_gradient<Row>(args_, args_.q, args_.d_q, tokens_.entry, token, key_head_,
                                  shared.query, memory_.row);
      store_operand_gradient<Row>(args_, args_.k, args_.d_k, tokens_.entry, token, key_head_,
                                  shared.key, memory_.row);
    }
  }

  const delta_rule_kernel_args& args_;
  const scratch& memory_;
  sequence tokens_;
  std::int64_t key_head_, group_;
};

template <class Row>
class backward_launch {
 public:
  using isa_type = typename traits<Row>::isa_type;
  using scratch = backward_scratch<Row>;

  backward_launch(const delta_rule_kernel_args& args, int threads)
      : args_(args), threads_(threads), of_chunks_(args, threads) {}

  /// Bytes of sums and of all threads; of sizes that no memory has room for, more than there can
  /// be.
  std::size_t bytes() const {
    if (scratch::is_beyond_memory(args_, threads_) ||
        of_chunks_.kept_floats_of(of_chunks_.heads) * threads_ > 0x1p56) {
      return PTRDIFF_MAX;
    }
    return static_cast<std::size_t>(scratch::bytes_of_sums(args_) + threads_ * bytes_of_thread());
  }

  void run(std::byte* memory) const {
    auto* const sums = reinterpret_cast<double*>(memory);
    std::fill_n(sums, scratch::all_sums(args_), 0.0);
    std::byte* const of_threads = memory + scratch::bytes_of_sums(args_);
    const std::int64_t of_thread = bytes_of_thread();
    const std::int64_t together = of_chunks_.together;
    const std::int64_t parts = (args_.key_heads + together - 1) / together;
    prim::parallel_items<isa_type>(
        sequences_with_rest(args_) * parts, threads_, [&](std::int64_t item, int thread) {
          const sequence tokens = sequence_of<isa_type>(args_, item / parts);
          if (!tokens.is_rest && !tokens.has_states) return;
          run_heads(tokens, item % parts * together, of_threads + thread * of_thread, sums);
        });
    if (args_.gate.raw) store_gate_sums(sums);
  }

 private:
  /// Whichever way the tokens of a sequence go.
  std::int64_t bytes_of_thread() const {
    const std::int64_t by_tokens =
        padded(scratch::floats_of_thread(args_)) * std::int64_t{sizeof(float)};
    const auto by_chunks = static_cast<std::int64_t>(chunk_scratch<Row>(of_chunks_, nullptr).bytes);
    return std::max(by_tokens, by_chunks);
  }

  /// Some key heads of a sequence, with their value heads.
  void run_heads(const sequence& tokens, std::int64_t first, std::byte* memory,
                 double* sums) const {
    const std::int64_t width = scratch::sums(args_);
    double* const of_sequence = sums + tokens.number * args_.value_heads * width;
    const gate_sums of_first_head{of_sequence, of_sequence + 1};
    if (goes_back_by_chunks<Row>(tokens)) {
      const chunk_scratch<Row> own(of_chunks_, memory);
      if (args_.update == delta_rule_update::delta) {
        chunk_backward_item<Row, false>(args_, own, tokens, first, of_first_head, width).run();
      } else {
        chunk_backward_item<Row, true>(args_, own, tokens, first, of_first_head, width).run();
      }
      return;
    }
    const scratch own(args_, reinterpret_cast<float*>(memory));
    const std::int64_t end = std::min(first + of_chunks_.together, args_.key_heads);
    for (std::int64_t head = first; head < end; ++head) {
      const backward_item<Row> work(args_, own, tokens, head);
      if (tokens.is_rest) {
        work.clear();
        continue;
      }
      double* const of_first = of_sequence + head * (args_.value_heads / args_.key_heads) * width;
      work.run({of_first, of_first + 1});
    }
  }

  /// Gradients of A_log and dt_bias: sums over the sequences.
  void store_gate_sums(const double* sums) const {
    const std::int64_t width = scratch::sums(args_);
    const std::int64_t biases = args_.decay_has_channels ? args_.key_dim : 1;
    for (std::int64_t head = 0; head < args_.value_heads; ++head) {
      const auto total = [&](std::int64_t at) {
        double sum = 0;
        for (std::int64_t n = 0; n < args_.sequences; ++n) {
          sum += sums[(n * args_.value_heads + head) * width + at];
        }
        return static_cast<float>(sum);
      };
      if (args_.d_a_log != nullptr) args_.d_a_log[head * args_.d_a_log_head] = total(0);
      for (std::int64_t c = 0; args_.d_bias != nullptr && c < biases; ++c) {
        args_.d_bias[head * args_.d_bias_head + c] = total(1 + c);
      }
    }
  }

  const delta_rule_kernel_args& args_;
  int threads_;
  chunk_extents<Row> of_chunks_;
};

}  // namespace tessera::kernels::delta_rule::cpu
