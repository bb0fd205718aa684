// Attention on latents in pages, which are the keys of all heads and, their first columns, the
// values. New latents are written first:
//
//   for each new token { copy }
//   for each block of rows of a sequence { for each tile of latents { scores; softmax;
//                                                                      weighted values } }
//
// Rows of a block are tokens times all heads, so that a tile that is read serves many of them.
// Blocks are cut by the rows of their sequence alone, keys into parts by their number alone:
// threads share the parts where there are few blocks, and bits are the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/absorbed_block.hpp>
#include <tessera/kernels/latent_attention/cpu/pages.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Kernel>
class absorbed_forward {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  explicit absorbed_forward(const latent_attention_kernel_args& args)
      : args_(args), sequences_{args} {}

  std::size_t workspace_bytes(int threads) const {
    const auto of_parts = static_cast<std::size_t>(room_for_parts(threads)) * part_bytes();
    return starts_bytes() + of_parts +
           static_cast<std::size_t>(threads) * thread_memory(args_, nullptr).bytes;
  }

  void run(std::byte* workspace, int threads) const {
    auto* const starts = reinterpret_cast<std::int64_t*>(workspace);
    const std::int64_t count = sequences_.count();
    starts[0] = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      starts[n + 1] = starts[n] + blocks_of(sequences_[n]);
    }
    if (args_.ckv_new.data != nullptr) {
      prim::parallel_items<isa_type>(count, threads, [&](std::int64_t n, int) {
        const prim::sequence seq = sequences_[n];
        for (std::int64_t i = 0; i < seq.q_len; ++i) write_latent<Kernel>(args_, seq, i);
      });
    }
    std::byte* const parts = workspace + starts_bytes();
    const std::int64_t room = room_for_parts(threads);
    std::byte* const of_threads = parts + static_cast<std::size_t>(room) * part_bytes();
    const std::size_t step = thread_memory(args_, nullptr).bytes;
    const auto memory_of = [&](int thread) {
      return thread_memory(args_, of_threads + static_cast<std::size_t>(thread) * step);
    };
    const auto with_block = [&](std::int64_t number, const auto& body) {
      const std::int64_t n = std::upper_bound(starts, starts + count + 1, number) - starts - 1;
      body(sequences_[n], number - starts[n]);
    };
    if (room == 0) {
      prim::parallel_items<isa_type>(starts[count], threads, [&](std::int64_t item, int thread) {
        with_block(item, [&](const prim::sequence& seq, std::int64_t block) {
          attend(seq, block, memory_of(thread));
        });
      });
    } else {
      const std::int64_t most = most_parts();
      const auto slot = [&](std::int64_t item) {
        return parts + static_cast<std::size_t>(item) * part_bytes();
      };
      prim::parallel_items<isa_type>(
          starts[count] * most, threads, [&](std::int64_t item, int thread) {
            with_block(item / most, [&](const prim::sequence& seq, std::int64_t block) {
              attend_part(seq, block, item % most, memory_of(thread), slot(item));
            });
          });
      prim::parallel_items<isa_type>(starts[count], threads, [&](std::int64_t item, int) {
        with_block(item, [&](const prim::sequence& seq, std::int64_t block) {
          combine(seq, block, [&](std::int64_t part) { return slot(item * most + part); });
        });
      });
    }
    clear_unused(threads);
  }

 private:
  /// Of a thread.
  struct thread_memory {
    thread_memory(const latent_attention_kernel_args& args, std::byte* base)
        : carver(base),
          block(args, carver),
          sums(carver.take<std::byte>(static_cast<std::int64_t>(bytes_of_part(args)))),
          bytes(carver.bytes()) {}
    prim::float_carver carver;
    absorbed_scratch<Kernel> block;
    std::byte* sums;  ///< of the parts so far
    std::size_t bytes;
  };

  /// Of a block. Packed, any sequence may have whole blocks.
  static std::int64_t most_rows(const latent_attention_kernel_args& args) {
    const std::int64_t rows = args.length * args.heads;
    return std::min<std::int64_t>(shape::block_rows, std::max<std::int64_t>(rows, 1));
  }

  /// The sums of a block of rows over a part of its keys.
  static std::size_t bytes_of_part(const latent_attention_kernel_args& args) {
    prim::float_carver carver(nullptr);
    static_cast<void>(sums_at(args, 0, carver));
    return carver.bytes();
  }
  std::size_t part_bytes() const { return bytes_of_part(args_); }
  static summed_rows sums_at(const latent_attention_kernel_args& args, int rows,
                             prim::float_carver& carver) {
    const std::int64_t stride = shape::sum_stride(args.value), room = most_rows(args);
    float* const out = carver.take(room * stride);
    return {out, carver.take<prim::softmax_state>(room), stride, rows};
  }
  summed_rows sums_at(std::byte* memory, int rows) const {
    prim::float_carver carver(memory);
    return sums_at(args_, rows, carver);
  }

  /// Of a sequence as long as a table has pages for.
  std::int64_t most_parts() const {
    return std::max<std::int64_t>(
        latent_schedule::parts_of(args_.pages.most_pages * args_.pages.page_size), 1);
  }
  /// Parts that threads share among them, where blocks are too few for all threads, or, if that
  /// takes little memory, for threads of unequal speed to end together; 0: each block goes through
  /// its own, one after the other.
  std::int64_t room_for_parts(int threads) const {
    constexpr std::int64_t most_bytes = std::int64_t{1} << 28;
    constexpr std::int64_t few_bytes = std::int64_t{1} << 25;
    constexpr std::int64_t most_blocks_of_thread = 8;
    const auto bytes = static_cast<std::int64_t>(part_bytes());
    const std::int64_t rows = args_.length * args_.heads;
    const std::int64_t blocks =
        args_.cu_seqlens_q != nullptr
            ? args_.entries + rows / shape::block_rows
            : args_.entries * ((rows + shape::block_rows - 1) / shape::block_rows);
    const std::int64_t parts = blocks * most_parts();
    const bool idle = 2 * blocks <= threads;
    const bool shared = idle || (threads > 1 && blocks <= most_blocks_of_thread * threads);
    return shared && parts <= (idle ? most_bytes : few_bytes) / bytes ? parts : 0;
  }

  /// The number of each sequence's first block, and of all blocks.
  std::size_t starts_bytes() const {
    return (static_cast<std::size_t>(args_.entries + 1) * sizeof(std::int64_t) + 63) / 64 * 64;
  }
  std::int64_t blocks_of(const prim::sequence& seq) const {
    return (seq.q_len * args_.heads + shape::block_rows - 1) / shape::block_rows;
  }

  /// The blocks of a sequence have the same number of rows, up to one.
  query_rows<Kernel> rows_of(const prim::sequence& seq, std::int64_t block) const {
    const std::int64_t all = seq.q_len * args_.heads, blocks = blocks_of(seq);
    const std::int64_t begin = all * block / blocks, end = all * (block + 1) / blocks;
    return {args_, seq, 0, begin, static_cast<int>(end - begin)};
  }
  /// Numbers of the parts that some row sees keys of; the first one where none does.
  static prim::key_interval parts_of(const query_rows<Kernel>& rows) {
    const prim::key_interval seen = rows.keys_of_some();
    if (seen.end <= seen.begin) return {0, 1};
    return {seen.begin / latent_schedule::part_keys, latent_schedule::parts_of(seen.end)};
  }

  /// One part after the other.
  void attend(const prim::sequence& seq, std::int64_t block, const thread_memory& memory) const {
    const query_rows<Kernel> rows = rows_of(seq, block);
    const prim::key_interval parts = parts_of(rows);
    const summed_rows sums = sums_at(memory.sums, rows.count());
    for (std::int64_t part = parts.begin; part < parts.end; ++part) {
      absorbed_block<Kernel> own(args_, rows, memory.block);
      add_part(rows, part, own);
      if (parts.end - parts.begin == 1) return store_sums(args_, rows, own.summed());
      if (part == parts.begin) {
        copy(own.summed(), sums);
      } else {
        add_sums<Kernel>(sums, own.summed());
      }
    }
    store_sums(args_, rows, sums);
  }

  /// One of them.
  void attend_part(const prim::sequence& seq, std::int64_t block, std::int64_t part,
                   const thread_memory& memory, std::byte* to) const {
    const query_rows<Kernel> rows = rows_of(seq, block);
    const prim::key_interval parts = parts_of(rows);
    if (part < parts.begin || part >= parts.end) return;
    absorbed_block<Kernel> own(args_, rows, memory.block);
    add_part(rows, part, own);
    copy(own.summed(), sums_at(to, rows.count()));
  }

  /// The block whose parts lie at memory_of(part).
  template <class MemoryOf>
  void combine(const prim::sequence& seq, std::int64_t block, const MemoryOf& memory_of) const {
    const query_rows<Kernel> rows = rows_of(seq, block);
    const prim::key_interval parts = parts_of(rows);
    const summed_rows sums = sums_at(memory_of(parts.begin), rows.count());
    for (std::int64_t part = parts.begin + 1; part < parts.end; ++part) {
      add_sums<Kernel>(sums, sums_at(memory_of(part), rows.count()));
    }
    store_sums(args_, rows, sums);
  }

  void add_part(const query_rows<Kernel>& rows, std::int64_t part,
                absorbed_block<Kernel>& sums) const {
    const std::int64_t k_len = rows.sequence().k_len;
    constexpr std::int64_t keys = latent_schedule::part_keys;
    const prim::key_interval seen = rows.keys_of_some();
    const std::int64_t end = std::min(seen.end, (part + 1) * keys);
    const auto tile_at = [&](std::int64_t key0) {
      const std::int64_t left = key0 < end ? k_len - key0 : 0;
      return key_range{key0, static_cast<int>(std::min<std::int64_t>(shape::block_keys, left))};
    };
    const std::int64_t first = std::max(seen.begin, part * keys) / shape::block_keys;
    for (std::int64_t key0 = first * shape::block_keys; key0 < end; key0 += shape::block_keys) {
      sums.add(tile_at(key0), tile_at(key0 + shape::block_keys));
    }
  }

  static void copy(const summed_rows& from, const summed_rows& to) {
    std::copy_n(from.out, from.count * from.stride, to.out);
    std::copy_n(from.state, from.count, to.state);
  }

  /// Tokens behind the last sequence.
  void clear_unused(int threads) const {
    if (args_.cu_seqlens_q == nullptr) return;
    const std::int64_t first = sequences_.end_of_tokens();
    prim::parallel_items<isa_type>(args_.length - first, threads, [&](std::int64_t item, int) {
      for (std::int64_t head = 0; head < args_.heads; ++head) {
        const std::int64_t row = args_.out.at(0, first + item, head);
        prim::with_elements<isa_type>(args_.out, [&](auto* elements) {
          using element = std::remove_pointer_t<decltype(elements)>;
          std::fill_n(elements + row, args_.value, element{});
        });
        if (args_.lse.data == nullptr) continue;
        args_.lse.data[head * args_.lse.head + (first + item) * args_.lse.row] =
            prim::minus_infinity;
      }
    });
  }

  const latent_attention_kernel_args& args_;
  paged_sequences<Kernel> sequences_;
};

}  // namespace tessera::kernels::latent_attention::cpu
