// Attention of each token to its selected blocks, by the products of the dense kernels: all keys of
// a sequence are packed once, and the query heads of a group are rows of one tile against each
// block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/cpu/gemm.hpp>
#include <tessera/kernels/attention/cpu/packed_tile.hpp>
#include <tessera/kernels/attention/cpu/prefill.hpp>
#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/dense_row.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/line_queue.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Of a launch. The keys of a sequence and head are a set, of packed sequences those of a head;
/// where not all sets fit, they take turns.
template <class Kernel>
class selected_attention {
  using row = dense_row<Kernel>;
  using shape = attention::cpu::traits<row>;
  using isa_type = typename shape::isa_type;
  using hooks_type = flash_hooks<>;
  using rows_type = attention::cpu::query_rows<row, hooks_type>;
  using source_type = attention::strided_source<typename shape::element>;
  using tile_type = attention::cpu::packed_tile<row>;

 public:
  using scratch_type = attention::cpu::prefill_scratch<row>;
  /// What a thread holds meanwhile.
  using products = typename shape::tile_scope;

  selected_attention(const native_sparse_kernel_args& args, prim::float_carver& memory)
      : args_(args), dense_(dense_args(args)) {
    const sparse_sequences& of = args.sequences;
    sets_ = is_packed() ? args.kv_heads : of.count * args.kv_heads;
    tiles_ = schedule_cpu::ceil_div(of.tokens, shape::block_kv) + (is_packed() ? of.count : 0);
    const std::int64_t set_bytes = tiles_ * tile_bytes();
    const std::int64_t room = most_bytes / std::max<std::int64_t>(set_bytes, 1);
    slots_ = std::max<std::int64_t>(1, std::min(room, sets_));
    tiles_of_round_ = memory.take<std::byte>(slots_ * set_bytes);
  }

  static scratch_type scratch(const native_sparse_kernel_args& args, prim::float_carver& memory) {
    const auto heads = std::min<std::int64_t>(args.q_heads / args.kv_heads, block_rows);
    const auto carve = [&](std::byte* from, scratch_type* to) {
      return scratch_type::carve(from, schedule_cpu::round_up(static_cast<int>(heads), shape::mr),
                                 static_cast<int>(args.head_dim), static_cast<int>(args.v_head_dim),
                                 to);
    };
    scratch_type buffers{};
    const std::size_t bytes = carve(nullptr, nullptr);
    std::byte* const from = memory.take<std::byte>(static_cast<std::int64_t>(bytes));
    if (from != nullptr) carve(from, &buffers);
    return buffers;
  }

  std::int64_t rounds() const { return schedule_cpu::ceil_div(sets_, slots_); }
  bool has(std::int64_t round, std::int64_t sequence, std::int64_t kv_head) const {
    return set_of(sequence, kv_head) / slots_ == round;
  }

  /// Packs the keys of a round.
  void pack(std::int64_t round, const native_sparse_rows<isa_type>& rows, int threads) const {
    const std::int64_t most = schedule_cpu::ceil_div(args_.sequences.tokens, shape::block_kv);
    prim::parallel_items<isa_type>(
        args_.sequences.count * args_.kv_heads * most, threads, [&](std::int64_t item, int) {
          const std::int64_t number = item / most / args_.kv_heads;
          const std::int64_t kv_head = item / most % args_.kv_heads;
          if (has(round, number, kv_head)) {
            pack_tile(number, rows.sequence(number), kv_head, item % most);
          }
        });
  }

  /// The rows of heads of a token, against its blocks: `for_each_block` calls its argument with the
  /// keys of each. Row r of the output is scratch.out_row(r) then.
  template <class Blocks>
  void attend(std::int64_t number, const token_sequence& tokens, std::int64_t kv_head,
              std::int64_t token, head_range heads, const Blocks& for_each_block,
              const scratch_type& scratch) const {
    const rows_type rows = rows_of(tokens, kv_head, token, heads);
    attention::cpu::load_q(rows, {0, rows.count()}, scratch);
    for_each_block([&](key_range keys) {
      for (std::int64_t key = keys.begin; key < keys.end;) {
        const tile_type tile = tile_at(number, tokens, kv_head, key / shape::block_kv);
        const std::int64_t end = std::min(keys.end, tile.keys.key0 + tile.keys.count);
        attend_to_tile(rows, tile, {key, end}, scratch);
        key = end;
      }
    });
    for (int r = 0; r < rows.count(); ++r) {
      scale_sums(scratch.out_row(r), rows.result_of(r, scratch.softmax.state(r)).scale);
    }
  }

 private:
  using key_interval = prim::key_interval;

  void scale_sums(float* sums, float factor) const {
    using vec = typename shape::vec;
    const auto factors = vec::broadcast(factor);
    for (int d = 0; d < dense_.v_head_dim; d += vec::width) {
      vec::store(sums + d, vec::mul(vec::load(sums + d), factors));
    }
  }

  bool is_packed() const { return args_.sequences.begin != nullptr; }
  std::int64_t set_of(std::int64_t sequence, std::int64_t kv_head) const {
    return is_packed() ? kv_head : sequence * args_.kv_heads + kv_head;
  }

  static attention_kernel_args dense_args(const native_sparse_kernel_args& args) {
    const auto strides = [](const sparse_rows& of) {
      return row_strides{.batch = of.entry, .row = of.token, .head = of.head};
    };
    attention_kernel_args dense;
    dense.q = args.q.data;
    dense.k = args.k.data;
    dense.v = args.v.data;
    dense.q_strides = strides(args.q);
    dense.k_strides = strides(args.k);
    dense.v_strides = strides(args.v);
    dense.q_heads = static_cast<int>(args.q_heads);
    dense.kv_heads = static_cast<int>(args.kv_heads);
    dense.head_dim = static_cast<int>(args.head_dim);
    dense.v_head_dim = static_cast<int>(args.v_head_dim);
    dense.softmax_scale = args.softmax_scale;
    return dense;
  }

  static prim::sequence sequence_of(const token_sequence& tokens) {
    return {tokens.entry, tokens.begin, tokens.begin, tokens.length, tokens.length};
  }
  rows_type rows_of(const token_sequence& tokens, std::int64_t kv_head, std::int64_t token,
                    head_range heads) const {
    const std::int64_t group = args_.q_heads / args_.kv_heads;
    return {dense_,
            hooks_,
            sequence_of(tokens),
            {.k_len = tokens.length, .mask = {.causal = true}},
            static_cast<int>(kv_head),
            token * group + heads.begin - kv_head * group,
            static_cast<int>(heads.count())};
  }
  source_type source_of(const token_sequence& tokens) const {
    return source_type::of(dense_, sequence_of(tokens));
  }

  /// Panels of keys and of values, which keys have values that are not in them, and whether any.
  static constexpr std::int64_t most_bytes = schedule_cpu::shared_keys::most_bytes;
  std::int64_t k_floats() const {
    return schedule_cpu::shared_keys::k_floats(shape::config, dense_.head_dim);
  }
  std::int64_t v_floats() const {
    return schedule_cpu::shared_keys::v_floats(shape::config, dense_.v_head_dim);
  }
  std::int64_t tile_bytes() const {
    return (k_floats() + v_floats()) * static_cast<std::int64_t>(sizeof(float)) +
           (shape::block_kv + 64) / 64 * 64;
  }
  tile_type tile_at(std::int64_t number, const token_sequence& tokens, std::int64_t kv_head,
                    std::int64_t index) const {
    const std::int64_t first = is_packed() ? tokens.begin / shape::block_kv + number : 0;
    const std::int64_t slot = set_of(number, kv_head) % slots_;
    tile_type tile;
    tile.keys.key0 = index * shape::block_kv;
    tile.keys.count =
        static_cast<int>(std::min<std::int64_t>(shape::block_kv, tokens.length - tile.keys.key0));
    tile.keys.seen = prim::tile_visibility::full;
    tile.k =
        reinterpret_cast<float*>(tiles_of_round_ + (slot * tiles_ + first + index) * tile_bytes());
    tile.v = tile.k + k_floats();
    tile.nonfinite = reinterpret_cast<bool*>(tile.v + v_floats());
    tile.finite = tile.nonfinite[shape::block_kv];
    return tile;
  }

  void pack_tile(std::int64_t number, const token_sequence& tokens, std::int64_t kv_head,
                 std::int64_t index) const {
    if (index * shape::block_kv >= tokens.length) return;
    tile_type at = tile_at(number, tokens, kv_head, index);
    scratch_type to{};
    to.k[0] = at.k;
    to.v[0] = at.v;
    to.nonfinite[0] = at.nonfinite;
    const std::int64_t head = kv_head * (args_.q_heads / args_.kv_heads);
    const rows_type last = rows_of(tokens, kv_head, tokens.length - 1, {head, head + 1});
    const source_type source = source_of(tokens);
    const attention::cpu::tile_packer<row, hooks_type, source_type> packer(last, source, to, {});
    tile_type tile = packer.begin(at.keys, 0);
    packer.pack_all(tile);
    packer.keep_nonfinite_out(tile);
    at.nonfinite[shape::block_kv] = tile.finite;
  }

  void attend_to_tile(const rows_type& rows, const tile_type& tile, key_interval keys,
                      const scratch_type& scratch) const {
    prim::line_queue lines;
    lines.clear();
    lines.spread(1);
    for (auto of = rows.first_tile(); of.rows > 0; of = rows.tile_after(of)) {
      const attention::cpu::key_columns used = rows.columns_in(of, tile.keys, keys);
      attention::cpu::gemm_qk<row>(dense_, of, tile.k, used, scratch, lines);
      attention::cpu::apply_score_mod(rows, of, used, scratch);
      attention::cpu::softmax(rows, of, used, scratch);
      attention::cpu::gemm_pv<row>(dense_, of, tile.v, used, scratch, lines);
      if (!tile.finite) {
        attention::cpu::add_nonfinite_values(rows, of,
                                             source_of(rows).v.rows(tile.keys.key0, rows.kv_head()),
                                             used, tile.nonfinite, scratch);
      }
    }
  }
  source_type source_of(const rows_type& rows) const {
    return source_type::of(dense_, rows.sequence());
  }

  const native_sparse_kernel_args& args_;
  const attention_kernel_args dense_;
  const hooks_type hooks_{};
  std::int64_t sets_ = 0;   ///< of keys
  std::int64_t tiles_ = 0;  ///< of a set
  std::int64_t slots_ = 0;  ///< sets of a round
  std::byte* tiles_of_round_ = nullptr;
};

}  // namespace tessera::kernels::sparse_attention::cpu
