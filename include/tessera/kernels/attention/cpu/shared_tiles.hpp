// Tiles of keys that the items of a head share (schedule_cpu::shared_keys).
//
// A tile is packed by the threads that need it first, a few keys each. Whoever comes later finds it
// packed. Nothing is written to it any more while anybody reads it, and no cache line of it is
// written by two threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/shared_progress.hpp>

namespace tessera::kernels::attention::cpu {

/// How far a tile is packed, in columns.
template <class Kernel>
struct tile_progress {
  prim::shared_progress<typename traits<Kernel>::isa_type> columns;
  std::atomic<bool> nonfinite{false};  ///< some value is NaN or infinite
};

/// The tiles of one head; of none where every item packs its own.
template <class Kernel>
struct head_tiles {
  tile_progress<Kernel>* progress = nullptr;
  std::byte* panels = nullptr;
  std::int64_t tile_bytes = 0;

  TESSERA_INLINE bool any() const { return progress != nullptr; }
  TESSERA_INLINE tile_progress<Kernel>* progress_of(std::int64_t tile) const {
    return progress + tile;
  }
  TESSERA_INLINE float* k(std::int64_t tile) const {
    return reinterpret_cast<float*>(panels + tile * tile_bytes);
  }
  TESSERA_INLINE float* v(const attention_kernel_args& args, std::int64_t tile) const {
    using shape = traits<Kernel>;
    return k(tile) + schedule_cpu::shared_keys::k_floats(shape::config, shape::head_dim(args));
  }
};

/// Those of a launch. A head's tiles lie where those of the head `slots` before it were, once its
/// items are through. With several memory nodes there is a copy for the threads beside each, who
/// pack what they read: so a page of it lies beside those that touch it first. Threads begin with
/// the heads of their node; those that have none left help the others, and pack their own copy.
template <class Kernel>
class shared_tiles {
  using isa_type = typename traits<Kernel>::isa_type;
  using progress = tile_progress<Kernel>;
  using head_progress = prim::shared_progress<isa_type>;
  using prefill_schedule = schedule_cpu::prefill_schedule;

 public:
  /// In `memory`, which is aligned as its lines.
  shared_tiles(std::byte* memory, const prefill_schedule& cut)
      : schedule_(cut),
        cut_(cut.shared),
        memory_(memory),
        heads_(cut.shared.any() ? cut.heads : 0) {}

  std::size_t bytes() const { return panel_bytes() + progress_bytes(); }

  /// Nothing is packed yet.
  void clear() const {
    if (heads_ == 0) return;
    for (std::int64_t i = 0; i < copies() * heads_ * cut_.tiles; ++i) {
      new (tiles_of(0, 0) + i) progress;
    }
    for (std::int64_t i = 0; i < heads_ + copies(); ++i) new (items_of(i)) head_progress;
  }

  /// Of items of which each head has `blocks`, the next one for a thread beside that memory node,
  /// in the order in which threads begin them, whatever the order of `index`: those that an item
  /// may wait for have begun before it. To be called once for each item.
  prefill_schedule::item next_item(std::int64_t index, std::int64_t blocks,
                                   std::int64_t node) const {
    if (heads_ == 0) return schedule_.item_at(index, blocks);
    for (std::int64_t owner = node;; owner = (owner + 1) % copies()) {
      const std::int64_t next = items_of(heads_ + owner)->take(1);
      if (next < schedule_.items_of_node(owner, blocks)) {
        return schedule_.item_at(next, blocks, owner);
      }
    }
  }

  /// Of a head, of which every item has `blocks`, for a thread beside that memory node.
  head_tiles<Kernel> of_head(std::int64_t head, std::int64_t blocks, std::int64_t node) const {
    if (heads_ == 0) return {};
    if (head >= cut_.slots) items_of(head - cut_.slots)->wait(static_cast<int>(blocks));
    return {tiles_of(head, node),
            memory_ + node * copy_bytes() + head % cut_.slots * cut_.tiles * cut_.tile_bytes,
            cut_.tile_bytes};
  }
  /// The copy of threads beside a memory node.
  std::int64_t copy_of(int node) const { return node % copies(); }
  /// An item of the head is through.
  void finish_item(std::int64_t head) const {
    if (heads_ != 0) items_of(head)->finish(1);
  }

 private:
  std::int64_t copies() const { return cut_.copies; }
  /// Whole pages, where there are several.
  std::int64_t copy_bytes() const {
    constexpr std::int64_t page = 4096;
    const std::int64_t bytes = (heads_ == 0 ? 0 : cut_.slots) * cut_.tiles * cut_.tile_bytes;
    return copies() == 1 ? bytes : (bytes + page - 1) / page * page;
  }
  std::size_t panel_bytes() const { return static_cast<std::size_t>(copies() * copy_bytes()); }
  /// Of each tile, of the items of each head, and of all items of a node.
  std::size_t progress_bytes() const {
    if (heads_ == 0) return 0;
    return static_cast<std::size_t>(copies() * heads_ * cut_.tiles) * sizeof(progress) +
           static_cast<std::size_t>(heads_ + copies()) * sizeof(head_progress);
  }
  progress* tiles_of(std::int64_t head, std::int64_t copy) const {
    return reinterpret_cast<progress*>(memory_ + panel_bytes()) +
           (copy * heads_ + head) * cut_.tiles;
  }
  head_progress* items_of(std::int64_t head) const {
    return reinterpret_cast<head_progress*>(tiles_of(0, copies())) + head;
  }

  prefill_schedule schedule_;
  schedule_cpu::shared_keys cut_;
  std::byte* memory_;
  std::int64_t heads_;
};

}  // namespace tessera::kernels::attention::cpu
