// What rows of recurrences that go by chunks ask of operands, whatever the family.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

/// `goes_by_chunks(config)` says which rows do, `Demand::aligned` what operands are like.
template <class Config, class Demand>
inline constexpr fit_rule<Config, Demand> chunks_are_of_aligned_rows{
    .name = "aligned",
    .distance = 1,
    .holds = [](const Config& row,
                const Demand& wanted) noexcept { return !goes_by_chunks(row) || wanted.aligned; },
    .obstacle =
        [](const Config&, const Demand&) {
          return std::string(
              "rows of operands are no multiples of 16 bytes apart, the row copies 16 bytes at a "
              "time");
        }};

/// Each operation takes a tensor whose rows it declares as those that chunks want aligned. Where
/// one did not, all of its calls would pass for aligned.
constexpr bool say_what_is_aligned(std::span<const operation> operations) noexcept {
  for (const operation& op : operations) {
    bool says = false;
    for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
      says |= (op.required >> i & 1u) != 0 && op.form->tensors[i].aligned_rows;
    }
    if (!says) return false;
  }
  return true;
}

}  // namespace tessera
