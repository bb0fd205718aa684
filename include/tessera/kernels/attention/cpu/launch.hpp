// Entry points of the attention kernels: from lowered arguments to work items
// (families/attention/schedule_cpu.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/common/new_tokens.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/common/split_kv.hpp>
#include <tessera/kernels/attention/cpu/coded_source.hpp>
#include <tessera/kernels/attention/cpu/decode.hpp>
#include <tessera/kernels/attention/cpu/prefill.hpp>
#include <tessera/kernels/attention/cpu/shared_tiles.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/kernels/kv_cache/cpu/append.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/processors.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::cpu {

/// Longest query length over the sequences of a launch.
template <class Isa>
std::int64_t longest_q(const attention_kernel_args& args) {
  if (args.cu_seqlens_q == nullptr) return args.q_len;
  std::int64_t longest = 0;
  for (std::int64_t n = 0; n < sequences_in_use(args); ++n) {
    const std::int64_t q_len = args.cu_seqlens_q[n + 1] - args.cu_seqlens_q[n];
    longest = q_len > longest ? q_len : longest;
  }
  return longest;
}

template <class Kernel, class Schedule, class... Nodes>
Schedule schedule_of(const attention_kernel_args& args, int threads, Nodes... nodes) {
  return Schedule::template of<typename traits<Kernel>::isa_type>(
      traits<Kernel>::config, schedule_cpu::sizes_of(args), threads, nodes...);
}

/// Workspace of a prefill launch: a slice per thread, then the tiles of keys that threads share,
/// for those beside each of the `nodes`.
template <class Kernel>
struct prefill_workspace {
  schedule_cpu::prefill_schedule schedule;
  std::size_t slice;   ///< bytes of one thread
  std::size_t slices;  ///< of all

  static prefill_workspace of(const attention_kernel_args& args, int threads,
                              const prim::memory_nodes& nodes = {}) {
    prefill_workspace space;
    space.schedule =
        schedule_of<Kernel, schedule_cpu::prefill_schedule>(args, threads, nodes.count);
    space.slice = space.carve(nullptr, args, nullptr);
    space.slices = static_cast<std::size_t>(threads) * space.slice;
    return space;
  }
  shared_tiles<Kernel> shared(std::byte* base) const { return {base + slices, schedule}; }
  std::size_t bytes() const { return slices + shared(nullptr).bytes(); }
  std::size_t carve(std::byte* slice_of_thread, const attention_kernel_args& args,
                    prefill_scratch<Kernel>* scratch) const {
    using shape = traits<Kernel>;
    return prefill_scratch<Kernel>::carve(slice_of_thread, schedule.item_rows,
                                          shape::head_dim(args), shape::v_head_dim(args), scratch);
  }
};

/// Workspace of a decode launch: a slice per thread, then the partial results. Follows from the
/// sizes alone, so that a plan can be made before any length is known.
template <class Kernel>
struct decode_workspace {
  decode_schedule schedule;
  std::size_t slice;  ///< bytes of one thread
  std::size_t bytes;  ///< of all
  partial_results partial;

  static decode_workspace at(std::byte* base, const attention_kernel_args& args, int threads) {
    decode_workspace space{};
    space.schedule = schedule_of<Kernel, decode_schedule>(args, threads);
    // A core's prefetcher extends the strides of some kilobytes in which the loop over heads walks
    // through a slice. It may not reach what another core writes.
    constexpr std::size_t page = 4096;
    constexpr std::size_t apart = std::size_t{64} * 1024;
    space.slice = (space.schedule.item_bytes() + page - 1) / page * page + apart;
    const std::size_t slices = static_cast<std::size_t>(threads) * space.slice;
    const int stride = strides::sums(traits<Kernel>::config, traits<Kernel>::v_head_dim(args));
    // Of the keys that a group shares a row has parts of their own.
    const std::int64_t parts = space.schedule.splits * (reads_prefixes_once(args) ? 2 : 1);
    space.partial = partial_results::at(base + slices, args, parts, stride);
    space.bytes = slices + space.partial.bytes(args);
    return space;
  }
};

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const attention_kernel_args& args, int threads) {
  const int workers = threads < 1 ? 1 : threads;
  if constexpr (traits<Kernel>::config.phase == attention_phase::decode) {
    return decode_workspace<Kernel>::at(nullptr, args, workers).bytes;
  } else {
    const auto& nodes = prim::nodes_of_process<typename traits<Kernel>::isa_type>();
    return prefill_workspace<Kernel>::of(args, workers, nodes).bytes();
  }
}

/// Blocks of rows, in the order of the schedule, by threads beside those memory nodes.
template <class Kernel, class Source, class Hooks>
void run_prefill(const attention_kernel_args& args, const Hooks& hooks,
                 const launch_context& context, const prim::memory_nodes& nodes) {
  using isa_type = typename traits<Kernel>::isa_type;
  const auto space =
      prefill_workspace<Kernel>::of(args, context.threads < 1 ? 1 : context.threads, nodes);
  const std::int64_t blocks = space.schedule.blocks(longest_q<isa_type>(args));
  const shared_tiles<Kernel> shared = space.shared(context.workspace);
  shared.clear();
  prim::parallel_items<isa_type>(
      blocks * space.schedule.heads, context.threads, [&](std::int64_t index, int thread) {
        prefill_scratch<Kernel> scratch;
        space.carve(context.workspace + static_cast<std::size_t>(thread) * space.slice, args,
                    &scratch);
        const std::int64_t copy = shared.copy_of(nodes.here());
        const auto [head, block] = shared.next_item(index, blocks, copy);
        const std::int64_t first_row = space.schedule.first_row(block);
        [[maybe_unused]] const typename traits<Kernel>::tile_scope products;
        const query_rows<Kernel, Hooks> rows(
            args, hooks, head / args.kv_heads, static_cast<int>(head % args.kv_heads), first_row,
            static_cast<int>(space.schedule.first_row(block + 1) - first_row));
        prefill(rows, Source::of(args, rows.sequence()), scratch,
                shared.of_head(head, blocks, copy));
        shared.finish_item(head);
      });
}

/// Rows of the largest group.
template <class Isa>
std::int64_t longest_group(const attention_kernel_args& args) {
  std::int64_t longest = 0;
  for (std::int64_t g = 0; g < args.prefixes.count; ++g) {
    const prim::sequence seq =
        sequence_of_prefix(args, g, 1, [&](std::int64_t n) { return sequence_of(args, n); });
    longest = seq.q_len > longest ? seq.q_len : longest;
  }
  return longest;
}

/// Splits of what groups share, of what sequences have, then their combination, a row after the
/// other.
template <class Kernel, class Source, class Hooks>
void run_decode(const attention_kernel_args& args, const Hooks& hooks,
                const launch_context& context) {
  using isa_type = typename traits<Kernel>::isa_type;
  const auto space = decode_workspace<Kernel>::at(context.workspace, args,
                                                  context.threads < 1 ? 1 : context.threads);
  const decode_schedule& cut = space.schedule;
  const auto slice_of = [&](int thread) {
    return context.workspace + static_cast<std::size_t>(thread) * space.slice;
  };
  const auto run_items = [&](std::int64_t entries, std::int64_t blocks, const auto& entry_at) {
    prim::parallel_items<isa_type>(
        entries * blocks * cut.splits * cut.head_groups, context.threads,
        [&](std::int64_t item, int thread) {
          const auto head_group = static_cast<int>(item % cut.head_groups);
          const std::int64_t split = item / cut.head_groups % cut.splits;
          const std::int64_t block = item / cut.head_groups / cut.splits % blocks;
          const auto entry = entry_at(item / cut.head_groups / cut.splits / blocks);
          // Splits are those of the longest sequence that there is room for.
          if (split >= key_splits::of(entry.seq.k_len, traits<Kernel>::tiles).count) return;
          const Source source = Source::of(args, entry.seq);
          [[maybe_unused]] const decode_scope<Kernel> products(cut.rows);
          decode(decode_item<Kernel, Hooks, Source>(args, hooks, source, slice_of(thread), cut,
                                                    entry, block * cut.block_q, head_group),
                 split, space.partial);
        });
  };
  if (reads_prefixes_once(args)) {
    run_items(args.prefixes.count, cut.blocks(longest_group<isa_type>(args)),
              [&](std::int64_t prefix) {
                return decode_entry<Kernel>::of_prefix(args, prefix, cut.splits);
              });
  }
  run_items(args.batch, cut.blocks(longest_q<isa_type>(args)),
            [&](std::int64_t entry) { return decode_entry<Kernel>::of(args, entry); });
  prim::parallel_items<isa_type>(
      args.batch * args.q_heads, context.threads, [&](std::int64_t item, int thread) {
        const prim::sequence seq = sequence_of(args, item / args.q_heads);
        const auto head = static_cast<int>(item % args.q_heads);
        const std::int64_t all = args.cu_seqlens_q != nullptr ? seq.q_len : args.q_len;
        for (std::int64_t query = 0; query < all; ++query) {
          if (query < seq.q_len) {
            combine_row<Kernel>(args, seq, query, head, space.partial,
                                reinterpret_cast<float*>(slice_of(thread)));
          } else {
            store_row<Kernel>(args, seq, query, head, {}, nullptr);
          }
        }
      });
}

/// Packed rows that belong to no sequence: zeros and -inf.
template <class Kernel>
void clear_rows_past_the_last(const attention_kernel_args& args) {
  prim::sequence rest;
  rest.q_begin = args.cu_seqlens_q[sequences_in_use(args)];
  for (std::int64_t query = 0; query < args.q_len - rest.q_begin; ++query) {
    for (int head = 0; head < args.q_heads; ++head) {
      store_row<Kernel>(args, rest, query, head, {}, nullptr);
    }
  }
}

/// New keys and values to the pool: as they are if they have its type, else rounded to it.
template <class Kernel>
void write_new_tokens(const attention_kernel_args& args, int threads) {
  using isa_type = typename traits<Kernel>::isa_type;
  using element = typename traits<Kernel>::element;
  namespace caches = kv_cache::cpu;
  const kv_append_args writes = append_args_of(args);
  if (size_of(writes.new_type) == 1) {
    caches::append_launch<isa_type, std::uint8_t, std::uint8_t>(writes).run(threads);
  } else if (size_of(writes.pool_type) == 1) {
    caches::append_to_codes<isa_type, element>(writes, threads);
  } else {
    caches::append_launch<isa_type, element, element>(writes).run(threads);
  }
}

/// Runs the kernel with user hooks on keys that lie as `Source` says. `args` come from `lower`,
/// `context.workspace` has `workspace_bytes<Kernel>(args, context.threads)` bytes.
template <class Kernel, class Source, class Hooks>
status launch_on(const attention_kernel_args& args, const Hooks& hooks,
                 const launch_context& context) {
  static_assert(key_source<Source>);
  const std::size_t needed = workspace_bytes<Kernel>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  if constexpr (traits<Kernel>::config.keys == key_storage::paged) {
    if (args.written.k != nullptr) write_new_tokens<Kernel>(args, context.threads);
  }
  if constexpr (traits<Kernel>::config.phase == attention_phase::decode) {
    run_decode<Kernel, Source>(args, hooks, context);
  } else {
    run_prefill<Kernel, Source>(args, hooks, context,
                                prim::nodes_of_process<typename traits<Kernel>::isa_type>());
  }
  if (args.cu_seqlens_q != nullptr) clear_rows_past_the_last<Kernel>(args);
  return {};
}

/// The same on keys that lie as the row's config says.
template <class Kernel, class Hooks>
status launch_with(const attention_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  using element = typename traits<Kernel>::element;
  if constexpr (traits<Kernel>::config.keys == key_storage::paged) {
    using coded = coded_source<typename traits<Kernel>::isa_type, element>;
    attention_kernel_args joined = args;
    // Functors ask for the position of a row in its own sequence.
    if (Hooks::has_logits || Hooks::has_mask) joined.prefixes = {};
    if (reads_prefixes_once(joined)) join_rows(joined);
    if (size_of(args.pool_type) == 1) return launch_on<Kernel, coded>(joined, hooks, context);
    return launch_on<Kernel, paged_source<element>>(joined, hooks, context);
  } else {
    return launch_on<Kernel, strided_source<element>>(args, hooks, context);
  }
}

/// Runs the kernel; see `attention_launch_function`.
template <class Kernel>
status launch(const attention_kernel_args& args, const launch_context& context) {
  return launch_with<Kernel>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::kernels::attention::cpu
