// What rows of recurrences that go by chunks ask of operands, whatever the family.
#pragma once

#include <string>

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

}  // namespace tessera
