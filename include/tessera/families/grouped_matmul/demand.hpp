// What a choice among rows of grouped matrix products may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// What operands are multiplied by: nothing; weights of parts of the summed axis; elements of 8
/// bits as product_scales says.
enum class product_scaling : std::uint8_t { none, parts, blocks, rows };
inline constexpr std::array<std::string_view, 4> product_scaling_names{"none", "parts", "blocks",
                                                                       "rows"};

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct grouped_matmul_demand {
  bool backward = false;
  dtype type = dtype::none;      ///< of lhs
  dtype rhs_type = dtype::none;  ///< of rhs
  dtype d_out_type = dtype::none;
  bool transposed = false;
  product_scaling scaled = product_scaling::none;
  bool grouped = true;      ///< rows lie group by group
  bool aligned = true;      ///< rows of operands are at multiples of 16 bytes, or on the CPU
  std::int64_t groups = 0;  ///< matrices
  std::int64_t m = 0;       ///< rows of all
  std::int64_t n = 0;
  std::int64_t k = 0;

  constexpr bool has_scales() const noexcept { return scaled != product_scaling::none; }
  /// Rows are elements of 8 bits, with scales.
  constexpr bool has_codes() const noexcept { return size_of(type) == 1; }
  /// All that is multiplied is bf16, as it is stored.
  constexpr bool is_bf16() const noexcept {
    return type == dtype::bf16 && rhs_type == dtype::bf16 && !has_scales() &&
           (!backward || d_out_type == dtype::bf16);
  }
  /// All that is multiplied is of `element`, as it is stored, or weights are of i8, which it holds
  /// exactly.
  constexpr bool is_of(dtype element) const noexcept {
    return type == element && (rhs_type == element || rhs_type == dtype::i8) && !has_scales() &&
           (!backward || d_out_type == element);
  }
  friend constexpr bool operator==(const grouped_matmul_demand&,
                                   const grouped_matmul_demand&) = default;
};

constexpr grouped_matmul_demand demand_of(grouped_matmul_op op, const grouped_matmul_args& args,
                                          const grouped_matmul_options& options,
                                          bool unaligned) noexcept {
  const auto& lhs = args.lhs.extent;
  const auto& rhs = args.rhs.extent;
  const bool batched = !has_groups(op) && args.lhs.rank == 3;
  const std::size_t rows = batched ? 1 : 0, of_rhs = batched || has_groups(op) ? 1 : 0;
  return {.backward = is_backward(op),
          .type = args.lhs.type,
          .rhs_type = args.rhs.type,
          .d_out_type = args.d_out.type,
          .transposed = options.transpose_rhs,
          .scaled = args.rhs_scale.present() ? product_scaling::parts : product_scaling::none,
          .grouped = has_groups(op),
          .aligned = !unaligned,
          .groups = of_rhs == 1 ? rhs[0] : 1,
          .m = batched ? lhs[0] * lhs[1] : lhs[0],
          .n = rhs[of_rhs + (options.transpose_rhs ? 0 : 1)],
          .k = lhs[rows + 1]};
}

constexpr grouped_matmul_demand demand_of(scaled_matmul_op op, const scaled_matmul_args& args,
                                          const scaled_matmul_options& options,
                                          bool unaligned) noexcept {
  const bool batched = !has_groups(op) && args.lhs.rank == 3;
  const std::size_t of_lhs = batched ? 1 : 0, of_rhs = batched || has_groups(op) ? 1 : 0;
  return {.type = args.lhs.type,
          .rhs_type = args.rhs.type,
          .transposed = true,
          .scaled = options.scales == product_scales::rows ? product_scaling::rows
                                                           : product_scaling::blocks,
          .grouped = has_groups(op),
          .aligned = !unaligned,
          .groups = of_rhs == 1 ? args.rhs.extent[0] : 1,
          .m = batched ? args.lhs.extent[0] * args.lhs.extent[1] : args.lhs.extent[0],
          .n = args.rhs.extent[of_rhs],
          .k = args.lhs.extent[of_lhs + 1]};
}

/// A matrix of a batch; of groups 64 rows each, however many there are: how full a batch is does
/// not count.
constexpr grouped_matmul_demand without_batch(grouped_matmul_demand demand) noexcept {
  if (demand.grouped) {
    demand.m = 64 * std::clamp<std::int64_t>(demand.groups, 1, 1 << 20);
  } else {
    demand.m /= std::max<std::int64_t>(demand.groups, 1);
    demand.groups = 1;
  }
  return demand;
}

namespace grouped_matmul_fields {

inline constexpr std::array table{
    fields::exact<&grouped_matmul_demand::grouped>("grouped"),
    fields::exact<&grouped_matmul_demand::backward>("backward"),
    fields::exact<&grouped_matmul_demand::type>("type"),
    fields::exact<&grouped_matmul_demand::rhs_type>("rhs_type"),
    fields::exact<&grouped_matmul_demand::d_out_type>("d_out_type"),
    fields::exact<&grouped_matmul_demand::transposed>("transposed"),
    fields::exact<&grouped_matmul_demand::scaled>("scaled", product_scaling_names),
    fields::exact<&grouped_matmul_demand::aligned>("aligned"),
    fields::bucket<&grouped_matmul_demand::groups>("groups"),
    fields::bucket<&grouped_matmul_demand::m>("m"),
    fields::bucket<&grouped_matmul_demand::n>("n"),
    fields::bucket<&grouped_matmul_demand::k>("k"),
};

}  // namespace grouped_matmul_fields
}  // namespace tessera
