// Score modification: from products q k to logits on the registers of a warpgroup: its 64 rows are
// four times the 16 rows of a warp that common/score_mod_tile.hpp knows.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/common/score_mod_row.hpp>
#include <tessera/kernels/attention/common/score_mod_tile.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/tile_classes.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>

namespace tessera::kernels::attention::sm90 {

/// Row of a work tile that a thread has in half 0.
__device__ __forceinline__ int row_of_lane(int thread, int warpgroup) {
  return warpgroup * rows_of_warpgroup + thread / 32 % 4 * 16 + thread % 32 / 4;
}

/// Where a row of a work tile stands.
template <class Traits>
__device__ __forceinline__ position position_of(const launch_args& args,
                                                const planned_tile<Traits>& planned, int row) {
  const query_row at = query_of(args, planned.work, row);
  return {planned.work.sequence, at.head, at.query, 0, at.query + planned.query_offset};
}

/// Keys of a lane: two of each 8, which lie so far ahead of the first.
struct lane_keys {
  int first;
  __device__ __forceinline__ int operator()(int e) const { return first + ahead(e); }
  static __device__ __forceinline__ constexpr int ahead(int e) { return e / 2 * 8 + e % 2; }
};

/// The scores of a warpgroup as tiles of 16 rows and 8 keys of its warps.
template <int Count>
__device__ __forceinline__ auto& tiles_of(float (&scores)[Count]) {
  static_assert(sizeof(prim::cuda::accumulator) == 4 * sizeof(float));
  return reinterpret_cast<prim::cuda::accumulator(&)[Count / 4]>(scores);
}

template <class Traits>
class score_mod {
  using hooks_type = typename Traits::hooks;
  using mods = modified_traits<Traits>;
  using row_form = score_mod_row<mods, hooks_type>;
  struct row_at {
    const score_mod& mod;
    __device__ __forceinline__ position operator()(int half) const {
      return mod.position_of_half(half);
    }
  };
  using tile_form = score_mod_tile<mods, launch_args, row_at>;

 public:
  /// Biases are asked for while products are made: rows of three warpgroups have no registers for
  /// it.
  static constexpr bool loads_ahead =
      mods::has_biases && !row_form::calls_functors && Traits::consumers == 2;
  struct no_biases {};
  using biases = std::conditional_t<loads_ahead, typename tile_form::biases, no_biases>;
  /// What is outside of rows' intervals is -inf afterwards.
  static constexpr bool hides_outside = Traits::calls_functors;

  __device__ __forceinline__ score_mod(const launch_args& args, const hooks_type& hooks,
                                       const planned_tile<Traits>& planned, lane_tile<Traits>& lane,
                                       int warpgroup)
      : args_(args),
        hooks_(hooks),
        planned_(planned),
        lane_(lane),
        warpgroup_(warpgroup),
        thread_(static_cast<int>(prim::cuda::thread_index())) {}

  /// Finds where the biases of the lane's rows lie, once a work tile.
  __device__ __forceinline__ void begin() const {
    if constexpr (loads_ahead) {
      const row_at rows{*this};
      const tile_form scores(args_, tiles_of(lane_.scores), rows, thread_, 0);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        lane_.biases[half] = holds_biases<Traits>(args_) ? nullptr : scores.first_biases(half);
      }
    }
    if constexpr (Traits::brings_biases) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int lane = thread_ % prim::cuda::warp_size;
        const int row = row_of_lane(thread_ - lane, warpgroup_) + half * 8 + lane % 8;
        lane_.bias_at[half] = chunk_of_line(args_.bias.line_of(row, args_.heads_of_tile), lane);
      }
    }
  }
  /// Asks for the biases of a tile of keys, if the copy unit does not bring them.
  __device__ __forceinline__ void ask(int tile, biases& first) const {
    if constexpr (loads_ahead) {
      using pair = bias_pair<typename Traits::element>;
      const int key0 = tile * Traits::block_kv;
      if (lane_.biases[0] == nullptr || !args_.wide || !can_read(key0)) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tile_form::load(static_cast<const pair*>(lane_.biases[half]), key0, first.row[half]);
      }
    }
  }

  /// Products with a tile of keys become logits; what is outside of rows' intervals may be
  /// anything, as long as `inside` is false where there is such. True if products stay without
  /// their cap (`cap_products`).
  __device__ __forceinline__ bool apply(int tile, bool inside,
                                        const bias_panel<Traits::kv_stages>& panel,
                                        const biases& first) const {
    bool uncapped = false;
    if constexpr (Traits::caps_products) {
      if (args_.cap.rate != 0.0f) uncapped = cap_products(lane_, args_.cap);
    }
    if constexpr (row_form::changes || row_form::reads || row_form::calls_functors) {
      change_and_hide(tile, inside, panel, first);
    }
    return uncapped;
  }

 private:
  /// All but the cap of products.
  __device__ __forceinline__ void change_and_hide(int tile, bool inside,
                                                  const bias_panel<Traits::kv_stages>& panel,
                                                  const biases& first) const {
    const int key0 = tile * Traits::block_kv;
    const bool looks =
        Traits::walks_tiles ? lane_.walk.hides_some(tile) : hides_some(planned_, warpgroup_, tile);
    if constexpr (!row_form::calls_functors) {
      if (!row_form::reads || (args_.wide && can_read(key0))) {
        const row_at rows{*this};
        tile_form scores(args_, tiles_of(lane_.scores), rows, thread_, key0);
        if constexpr (row_form::changes) {
          if constexpr (loads_ahead) {
            if (!args_.plain) {
              scores.change([&](typename tile_form::biases& to) {
                if (holds_biases<Traits>(args_)) {
                  load_brought(panel, to);
                } else {
                  to = first;
                }
              });
            }
          } else if (!args_.plain) {
            scores.change();
          }
        }
        if (looks) scores.hide();
        return;
      }
    }
    if constexpr (row_form::calls_functors) {
      // Products are logits, and all are seen.
      if (!hooks_type::has_logits && args_.plain && inside && !looks) return;
      apply_to_rows<Traits::key_tiles>(key0, looks, inside);
    } else if constexpr (row_form::reads) {
      if (holds_biases<Traits>(args_)) {
        panel.pass();
      }
      // 16 keys at a time, each in the place of the first, so that the code is there once and takes
      // few registers.
#pragma unroll 1
      for (int key = key0; key < key0 + Traits::block_kv; key += 16) {
        apply_to_rows<2>(key, looks, inside);
        turn_keys();
      }
    }
  }

  __device__ __forceinline__ int row_of_half(int half) const {
    return row_of_lane(thread_, warpgroup_) + 8 * half;
  }
  /// Always of a row that is used.
  __device__ __forceinline__ position position_of_half(int half) const {
    if constexpr (row_form::calls_functors) return lane_.rows[half];
    return position_of(args_, planned_, min(row_of_half(half), planned_.work.used - 1));
  }

  /// True if tensors have all keys of a tile.
  __device__ __forceinline__ bool can_read(int key0) const {
    const attention_kernel_args& call = args_.call;
    // Of biases that are brought zeros lie behind the last key.
    if (holds_biases<Traits>(args_) && call.mask.data == nullptr &&
        call.kv_segments.data == nullptr) {
      return true;
    }
    return key0 + Traits::block_kv <=
           (call.cu_seqlens_k != nullptr ? planned_.work.k_len : call.kv_len);
  }

  /// The biases of the lane's rows that have been brought.
  __device__ __forceinline__ void load_brought(const bias_panel<Traits::kv_stages>& panel,
                                               typename tile_form::biases& to) const {
    if constexpr (Traits::brings_biases) {
      const std::uint32_t at = panel.wait();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        load_from_panel(at, lane_.bias_at[half], to.row[half].of);
      }
      panel.release();
    }
  }

  /// The first `KeyTiles` times 8 keys, which begin at key0.
  template <int KeyTiles>
  __device__ __forceinline__ void apply_to_rows(int key0, bool looks, bool inside) const {
    constexpr int count = 2 * KeyTiles;
    const lane_keys key_of{key0 + thread_ % 4 * 2};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[count];
#pragma unroll
      for (int e = 0; e < count; ++e) x[e] = lane_.scores[e / 2 * 4 + half * 2 + e % 2];
      const position at = position_of_half(half);
      if (inside && !Traits::walks_tiles) {
        row_form::apply_inside(args_, hooks_, x, at, key_of, looks);
      } else {
        const row_keys keys = planned_.keys[row_of_half(half)];
        row_form::apply_row(args_, hooks_, x, at, key_of, {keys.begin, keys.end}, looks);
      }
#pragma unroll
      for (int e = 0; e < count; ++e) lane_.scores[e / 2 * 4 + half * 2 + e % 2] = x[e];
    }
  }

  /// Scores of each 16 keys take the place of those before, the first that of the last.
  __device__ __forceinline__ void turn_keys() const {
    float first[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) first[i] = lane_.scores[i];
#pragma unroll
    for (int i = 0; i < Traits::block_kv / 2; ++i) {
      lane_.scores[i] = i + 8 < Traits::block_kv / 2 ? lane_.scores[i + 8]
                                                     : first[(i + 8) % (Traits::block_kv / 2)];
    }
  }

  const launch_args& args_;
  const hooks_type& hooks_;
  const planned_tile<Traits>& planned_;
  lane_tile<Traits>& lane_;
  const int warpgroup_;
  const int thread_;
};

/// Rows that are not used hold what was there before, or rows of others: their scores move no
/// reference, which would move those of their warp. After `set_reference`.
template <class Traits>
__device__ __forceinline__ void leave_out_unused(const planned_tile<Traits>& planned, int warpgroup,
                                                 lane_tile<Traits>& lane) {
  const int row = row_of_lane(static_cast<int>(prim::cuda::thread_index()), warpgroup);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= planned.work.used) lane.reference[half] = -prim::minus_infinity;
  }
}

/// f8_e4m3: takes the scale of the work tile's heads, and turns the signs of scores if it is below
/// 0.
template <class Traits>
__device__ __forceinline__ void set_scale(const planned_tile<Traits>& planned,
                                          lane_tile<Traits>& lane) {
  lane.scale = planned.log2_scale;
  if (!planned.turns_scores) return;
#pragma unroll
  for (float& score : lane.scores) score = -score;
}

/// Which of a lane's columns of a row, two of each eight, lie before column `end` of a tile, which
/// is counted from the lane's first: a bit each.
template <class Traits>
__device__ __forceinline__ std::uint64_t columns_before(int end) {
  static_assert(Traits::block_kv / 4 < 64);
  const int inside = min(max(end, 0), Traits::block_kv);
  return (std::uint64_t{1} << (inside / 8 * 2 + min(inside % 8, 2))) - 1;
}
/// Bits `first` to `first` + 3 as bits 1 to 4, of which an instruction makes predicates: four at a
/// time, so that the loop keeps its own.
__device__ __forceinline__ std::uint32_t four_bits(std::uint32_t bits, int first) {
  std::uint32_t four;
  if (first == 0) {
    asm volatile("shl.b32 %0, %1, 1;" : "=r"(four) : "r"(bits));
  } else {
    asm volatile("shr.u32 %0, %1, %2;" : "=r"(four) : "r"(bits), "r"(first - 1));
  }
  return four;
}

/// Scores of keys that rows do not see become -inf; `tile` is one of keys, of which `Part` has all
/// or the first half.
template <class Traits, class Part>
__device__ __forceinline__ void hide_outside(const planned_tile<Traits>& planned, int warpgroup,
                                             int tile, lane_tile<Part>& lane) {
  const unsigned thread = prim::cuda::thread_index();
  const int row = row_of_lane(static_cast<int>(thread), warpgroup);
  const int key0 = tile * Traits::block_kv + static_cast<int>(thread % 4 * 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    row_keys keys = planned.keys[row + 8 * half];
    // A tile that other rows of the work tile are shown.
    if constexpr (Traits::whole_tiles) {
      if (planned.hides_from(warpgroup, tile)) keys.end = 0;
    }
    const std::uint64_t bits =
        columns_before<Part>(keys.end - key0) & ~columns_before<Part>(keys.begin - key0);
    std::uint32_t four = 0;
#pragma unroll
    for (int column = 0; column < Part::block_kv / 4; ++column) {
      if (column % 4 == 0) {
        four = four_bits(static_cast<std::uint32_t>(bits >> column / 32 * 32), column % 32);
      }
      float& score = lane.scores[column / 2 * 4 + half * 2 + column % 2];
      score = (four >> (1 + column % 4) & 1u) != 0 ? score : prim::minus_infinity;
    }
  }
}

}  // namespace tessera::kernels::attention::sm90
