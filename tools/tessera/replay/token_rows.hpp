// What tokens are made of: random numbers that follow from who a token is, so that what a page must
// hold can be told at any time, and a sequence that comes back computes the same again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/spec/dtype.hpp>

#include "tools/replay/trace.hpp"

namespace tessera::tool {

/// Tells tokens apart: those of a common prefix are the same for all who have it.
std::uint64_t identity_of(const replay::request& asked, std::size_t number, std::int64_t position);

/// Rows of one tensor, of mean 0 and variance 1. Tokens of different identity have different ones,
/// but for one pair in a thousand, or in sixty where rows are wide.
class token_rows {
 public:
  token_rows(std::int64_t elements, dtype type, std::uint64_t seed);

  std::size_t bytes() const noexcept { return bytes_; }  ///< of a row
  const std::byte* row(std::uint64_t identity) const noexcept {
    return memory_.data() + identity % count_ * bytes_;
  }

 private:
  std::size_t count_;
  std::size_t bytes_;
  std::vector<std::byte> memory_;
};

}  // namespace tessera::tool
