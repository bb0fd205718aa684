// Native sparse attention: for the tokens of a list and each group of heads, attention to means of
// blocks, the selection, attention to selected blocks, and attention to a window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/cpu/block_selection.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/selected_attention.hpp>
#include <tessera/kernels/sparse_attention/cpu/softmax_block.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Attention of the rows of a list, whose queries are loaded, to keys [begin, end) of a branch.
template <class Isa>
void attend_to(const native_sparse_rows<Isa>& rows, sparse_branch branch,
               const token_sequence& tokens, std::int64_t kv_head, const row_list& list,
               key_range keys, softmax_block<Isa>& block) {
  for (std::int64_t first = keys.begin; first < keys.end; first += block_keys) {
    rows.load_tile(branch, tokens, kv_head, first,
                   std::min<std::int64_t>(block_keys, keys.end - first), block);
    block.compute_scores({rows.args().softmax_scale});
    rows.hide(branch, list, first, block);
    block.accumulate();
  }
}

/// The softmax of the rows of a list over the blocks that tokens [first, last] see the means of,
/// without values.
template <class Isa>
void weigh_means(const native_sparse_rows<Isa>& rows, const token_sequence& tokens,
                 std::int64_t kv_head, const row_list& list, softmax_block<Isa>& block) {
  rows.for_each_tile_of_means(tokens, kv_head, list, block, [&](std::int64_t) { block.weigh(); });
}

/// Where every list of tokens loads its keys itself.
struct no_packed_keys {
  struct products {};
  struct scratch_type {};
  no_packed_keys(const native_sparse_kernel_args&, prim::float_carver&) {}
  static scratch_type scratch(const native_sparse_kernel_args&, prim::float_carver&) { return {}; }
  std::int64_t rounds() const { return 1; }
  bool has(std::int64_t, std::int64_t, std::int64_t) const { return true; }
  template <class Rows>
  void pack(std::int64_t, const Rows&, int) const {}
};

template <class Kernel>
class native_sparse_forward {
  static constexpr bool packs_keys = Kernel::config.type != dtype::none;
  using selected_type =
      typename std::conditional_t<packs_keys, std::type_identity<selected_attention<Kernel>>,
                                  std::type_identity<no_packed_keys>>::type;
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using vec = prim::simd<isa_type>;
  using rows_type = native_sparse_rows<isa_type>;

 public:
  explicit native_sparse_forward(const native_sparse_kernel_args& args) : args_(args) {}

  std::size_t workspace_bytes(int threads) const {
    prim::float_carver memory(nullptr);
    const rows_type rows(args_, memory);
    static_cast<void>(selected_type(args_, memory));
    return memory.bytes() + static_cast<std::size_t>(threads) * thread_bytes(rows);
  }

  void run(std::byte* workspace, int threads) const {
    prim::float_carver memory(workspace);
    const rows_type rows(args_, memory);
    const selected_type selected(args_, memory);
    if (rows.has(sparse_branch::compressed) || selects()) rows.make_means(threads);
    std::byte* const of_threads = workspace + memory.bytes();
    const std::int64_t step = rows.tokens_of_list();
    const std::int64_t lists = (args_.sequences.tokens + step - 1) / step;
    for (std::int64_t round = 0; round < selected.rounds(); ++round) {
      selected.pack(round, rows, threads);
      prim::parallel_items<isa_type>(
          args_.sequences.count * args_.kv_heads * lists, threads,
          [&](std::int64_t item, int thread) {
            const sequence_head at{item / (lists * args_.kv_heads), item / lists % args_.kv_heads,
                                   rows.sequence(item / (lists * args_.kv_heads))};
            const std::int64_t first = (lists - 1 - item % lists) * step;
            if (first >= at.tokens.length || !selected.has(round, at.number, at.kv_head)) return;
            [[maybe_unused]] const typename selected_type::products products;
            prim::float_carver own(of_threads +
                                   static_cast<std::size_t>(thread) * thread_bytes(rows));
            thread_memory mine(rows, own);
            attend(rows, selected, at, {first, std::min(first + step, at.tokens.length)}, mine);
          });
    }
    clear_unused(rows, threads);
  }

 private:
  /// A sequence, its number, and a key/value head.
  struct sequence_head {
    std::int64_t number, kv_head;
    token_sequence tokens;
  };
  struct thread_memory {
    thread_memory(const rows_type& rows, prim::float_carver& memory)
        : block(rows.args().head_dim, rows.args().v_head_dim, memory),
          selection(rows, memory),
          out(memory.take(block_rows * block.v_stride)),
          scratch(selected_type::scratch(rows.args(), memory)) {}
    softmax_block<isa_type> block;
    block_selection<isa_type> selection;
    float* out;
    typename selected_type::scratch_type scratch;
    float lse[block_rows];
    row_list list;
  };

  bool selects() const { return args_.given.data == nullptr; }
  std::size_t thread_bytes(const rows_type& rows) const {
    prim::float_carver memory(nullptr);
    static_cast<void>(thread_memory(rows, memory));
    return memory.bytes();
  }

  /// The heads of a group for tokens [begin, end).
  void attend(const rows_type& rows, const selected_type& selected, const sequence_head& at,
              key_range queries, thread_memory& mine) const {
    const token_sequence& tokens = at.tokens;
    const std::int64_t kv_head = at.kv_head;
    if (selects()) select(rows, tokens, kv_head, queries, mine);
    if (args_.out.data == nullptr) return;
    rows.for_each_heads(kv_head, [&](head_range heads) {
      list_rows(queries, heads, mine.list);
      std::fill(mine.out, mine.out + mine.list.count * mine.block.v_stride, 0.0f);
      for (const auto branch : {sparse_branch::compressed, sparse_branch::window}) {
        if (!rows.has(branch)) continue;
        attend_to_branch(rows, branch, tokens, kv_head, queries, mine);
        add_to_out(rows, branch, tokens, 0, mine);
      }
      if constexpr (packs_keys) {
        attend_to_packed_blocks(rows, selected, at, queries, heads, mine);
      } else {
        attend_to_blocks(rows, tokens, kv_head, queries, heads, mine);
      }
      list_rows(queries, heads, mine.list);
      const auto offsets = rows_type::offsets(args_.out, tokens, mine.list);
      for (int r = 0; r < mine.list.count; ++r) {
        prim::store_row<isa_type>(args_.out, offsets(r), args_.v_head_dim,
                                  mine.out + r * mine.block.v_stride);
      }
    });
  }

  static void list_rows(key_range queries, head_range heads, row_list& list) {
    list.clear();
    for (std::int64_t token = queries.begin; token < queries.end; ++token) {
      list.add(token, heads.begin, heads.end);
    }
  }

  /// Those of the list, which have seen nothing.
  void load_queries(const token_sequence& tokens, thread_memory& mine) const {
    mine.block.load_queries(args_.q, mine.list.count,
                            rows_type::offsets(args_.q, tokens, mine.list));
    mine.block.start();
  }

  /// Softmax over all that the tokens see of a branch that is no list.
  void attend_to_branch(const rows_type& rows, sparse_branch branch, const token_sequence& tokens,
                        std::int64_t kv_head, key_range queries, thread_memory& mine) const {
    load_queries(tokens, mine);
    attend_to(rows, branch, tokens, kv_head, mine.list,
              rows.seen_by(branch, queries.begin, queries.end - 1), mine.block);
  }

  /// Blocks for each token of the list, and the output that has them.
  void select(const rows_type& rows, const token_sequence& tokens, std::int64_t kv_head,
              key_range queries, thread_memory& mine) const {
    mine.selection.clear(queries.end - queries.begin);
    rows.for_each_heads(kv_head, [&](head_range heads) {
      list_rows(queries, heads, mine.list);
      load_queries(tokens, mine);
      weigh_means(rows, tokens, kv_head, mine.list, mine.block);
      for (int r = 0; r < mine.list.count; ++r) {
        mine.lse[r] = prim::finish_row(mine.block.state[r], nullptr, 0, 0, true).lse;
      }
      mine.selection.add(tokens, kv_head, mine.list, mine.lse, mine.block);
    });
    for (std::int64_t token = queries.begin; token < queries.end; ++token) {
      mine.selection.select(queries.begin, token - queries.begin);
      store_selection(tokens, kv_head, token, mine.selection.numbers(token - queries.begin),
                      mine.selection.slots());
    }
  }
  void store_selection(const token_sequence& tokens, std::int64_t kv_head, std::int64_t token,
                       const std::int32_t* numbers, std::int64_t count) const {
    const sparse_slots& to = args_.selected;
    if (to.data == nullptr) return;
    std::int32_t* const slots =
        to.data + tokens.entry * to.entry + (tokens.begin + token) * to.token + kv_head * to.head;
    for (std::int64_t s = 0; s < args_.block_count; ++s) {
      slots[s * to.slot] = s < count ? numbers[s] : -1;
    }
  }

  /// Each token by itself, for each has blocks of its own.
  void attend_to_blocks(const rows_type& rows, const token_sequence& tokens, std::int64_t kv_head,
                        key_range queries, head_range heads, thread_memory& mine) const {
    for (std::int64_t token = queries.begin; token < queries.end; ++token) {
      mine.list.clear();
      mine.list.add(token, heads.begin, heads.end);
      load_queries(tokens, mine);
      for_each_block(rows, tokens, kv_head, queries, token, mine, [&](key_range keys) {
        attend_to(rows, sparse_branch::selected, tokens, kv_head, mine.list, keys, mine.block);
      });
      add_to_out(rows, sparse_branch::selected, tokens, (token - queries.begin) * heads.count(),
                 mine);
    }
  }

  /// The same by products of the dense kernels.
  void attend_to_packed_blocks(const rows_type& rows, const selected_type& selected,
                               const sequence_head& at, key_range queries, head_range heads,
                               thread_memory& mine) const {
    float* to = mine.out;
    for (std::int64_t token = queries.begin; token < queries.end; ++token) {
      selected.attend(
          at.number, at.tokens, at.kv_head, token, heads,
          [&](const auto& attend_to_keys) {
            for_each_block(rows, at.tokens, at.kv_head, queries, token, mine, attend_to_keys);
          },
          mine.scratch);
      for (std::int64_t head = heads.begin; head < heads.end; ++head, to += mine.block.v_stride) {
        const auto r = static_cast<int>(head - heads.begin);
        const float gate = rows.gate_of(sparse_branch::selected, at.tokens, token, head);
        add_row(gate, mine.scratch.out_row(r), to, mine.block.v_stride);
      }
    }
  }

  /// Calls body(keys) for the blocks of a token.
  template <class Body>
  void for_each_block(const rows_type& rows, const token_sequence& tokens, std::int64_t kv_head,
                      key_range queries, std::int64_t token, const thread_memory& mine,
                      const Body& body) const {
    const auto with_keys = [&](std::int64_t number) { body(rows.tokens_of_block(number, token)); };
    if (selects()) {
      mine.selection.for_each(token - queries.begin, with_keys);
    } else {
      rows.for_each_given(tokens, token, kv_head, with_keys);
    }
  }

  /// The rows of the block, finished and gated, become part of rows `first` and following of out.
  void add_to_out(const rows_type& rows, sparse_branch branch, const token_sequence& tokens,
                  std::int64_t first, thread_memory& mine) const {
    const std::int64_t stride = mine.block.v_stride;
    for (int r = 0; r < mine.list.count; ++r) {
      static_cast<void>(mine.block.finish(r, nullptr, 0, 0));
      add_row(rows.gate_of(branch, tokens, mine.list.token[r], mine.list.head[r]),
              mine.block.output_row(r), mine.out + (first + r) * stride, stride);
    }
  }
  /// to += gate row, in whole registers.
  static void add_row(float gate, const float* row, float* to, std::int64_t columns) {
    const auto factor = vec::broadcast(gate);
    for (std::int64_t d = 0; d < columns; d += vec::width) {
      vec::store(to + d, vec::fma(factor, vec::load(row + d), vec::load(to + d)));
    }
  }

  /// Tokens behind the last sequence have no output and no selection.
  void clear_unused(const rows_type& rows, int threads) const {
    rows.for_each_unused(threads, [&](const token_sequence& token) {
      rows_type::clear(args_.out, token, args_.q_heads, args_.v_head_dim);
      for (std::int64_t head = 0; head < args_.kv_heads; ++head) {
        store_selection(token, head, 0, nullptr, 0);
      }
    });
  }

  const native_sparse_kernel_args args_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
