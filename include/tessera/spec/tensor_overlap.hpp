// Do two strided tensors share a byte? Exact for every layout whose strides nest (slices of one
// buffer, interleaved heads, transposed axes); where the search would take too long the answer is
// yes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/spec/tensor_view.hpp>

namespace tessera::checks {

/// Sums stride[i] * x[i] with 0 <= x[i] <= steps[i] and positive strides, largest stride first.
class reachable_sums {
 public:
  /// Adds an axis. A negative stride counts from its far end, which moves the target.
  constexpr void add(std::int64_t stride, std::int64_t steps) noexcept {
    if (stride == 0 || steps <= 0) return;
    if (stride < 0) {
      shift_ += stride * steps;
      stride = -stride;
    }
    std::size_t at = 0;
    while (at < count_ && axes_[at].stride > stride) ++at;
    if (at < count_ && axes_[at].stride == stride) {
      axes_[at].steps += steps;
      return;
    }
    for (std::size_t i = count_; i > at; --i) axes_[i] = axes_[i - 1];
    axes_[at] = {stride, steps, 0};
    ++count_;
  }

  /// True if some sum lies in [low, high], or if that is not known after `patience` steps.
  constexpr bool reach(std::int64_t low, std::int64_t high, int patience) noexcept {
    std::int64_t rest = 0;
    for (std::size_t i = count_; i-- > 0;) {
      axes_[i].rest = rest;
      rest += axes_[i].stride * axes_[i].steps;
    }
    return search(0, rest, low - shift_, high - shift_, patience);
  }

 private:
  struct axis {
    std::int64_t stride = 1;
    std::int64_t steps = 0;
    std::int64_t rest = 0;  ///< largest sum of the axes after this one
  };

  constexpr bool search(std::size_t at, std::int64_t largest, std::int64_t low, std::int64_t high,
                        int& patience) const noexcept {
    if (high < 0 || low > largest) return false;
    if (at == count_ || --patience < 0) return true;
    const axis& current = axes_[at];
    const std::int64_t missing = low - current.rest;
    std::int64_t step = missing <= 0 ? 0 : (missing - 1) / current.stride + 1;
    for (; step <= current.steps && step * current.stride <= high; ++step) {
      const std::int64_t taken = step * current.stride;
      if (search(at + 1, current.rest, low - taken, high - taken, patience)) return true;
    }
    return false;
  }

  std::array<axis, 2 * max_rank> axes_{};
  std::size_t count_ = 0;
  std::int64_t shift_ = 0;
};

/// True if an element of `a` and one of `b` share a byte. Both have elements, and their spans are
/// checked (`has_memory`) and intersect.
inline bool share_memory(const tensor_view& a, const tensor_view& b) noexcept {
  const auto size_a = static_cast<std::int64_t>(size_of(a.type));
  const auto size_b = static_cast<std::int64_t>(size_of(b.type));
  reachable_sums sums;
  for (int i = 0; i < a.rank; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    if (a.extent[axis] > 1) sums.add(a.stride[axis] * size_a, a.extent[axis] - 1);
  }
  for (int i = 0; i < b.rank; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    if (b.extent[axis] > 1) sums.add(-b.stride[axis] * size_b, b.extent[axis] - 1);
  }
  const auto distance = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(b.data) -
                                                  reinterpret_cast<std::uintptr_t>(a.data));
  constexpr int patience = 10000;
  return sums.reach(distance - (size_a - 1), distance + (size_b - 1), patience);
}

}  // namespace tessera::checks
