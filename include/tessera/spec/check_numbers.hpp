// Numbers in lists of host memory: which are looked at, and which have been seen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::checks {

/// What a count says: its last number.
inline std::int32_t number_of(const tensor_view& count) noexcept {
  const std::int64_t last = (count.extent[0] - 1) * count.stride[0];
  return static_cast<const std::int32_t*>(count.data)[last];
}

/// Entries of a list that are looked at: all, or as many as a count in host memory says.
inline std::int64_t entries_in_use(const bound_call& call, std::size_t list) noexcept {
  const axis_form& axis = call.form().shape(list, call.layout).axes[0];
  const std::int64_t entries = call.tensors[list].extent[0];
  const auto tensors = call.form().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].holds != tensor_contents::count || !call.has(i)) continue;
    if (tensors[i].counts != axis.dim) continue;
    const std::int64_t used = std::int64_t{number_of(call.tensors[i])} + axis.plus;
    return used < entries ? used : entries;
  }
  return entries;
}

/// Marks of the numbers below a limit: on the stack as long as there are few.
class number_marks {
 public:
  explicit number_marks(std::int64_t limit) {
    if (limit <= static_cast<std::int64_t>(most_bits)) return;
    many_.resize(static_cast<std::size_t>(limit) / 64 + 1);
    words_ = many_.data();
  }
  number_marks(const number_marks&) = delete;
  number_marks& operator=(const number_marks&) = delete;
  bool has(std::int32_t number) const noexcept { return (words_[word(number)] & bit(number)) != 0; }
  void mark(std::int32_t number) noexcept { words_[word(number)] |= bit(number); }

 private:
  static constexpr std::size_t most_bits = std::size_t{1} << 16;
  static std::size_t word(std::int32_t number) noexcept {
    return static_cast<std::size_t>(number) / 64;
  }
  static std::uint64_t bit(std::int32_t number) noexcept {
    return std::uint64_t{1} << (number % 64);
  }
  std::array<std::uint64_t, most_bits / 64> few_{};
  std::vector<std::uint64_t> many_;
  std::uint64_t* words_ = few_.data();
};

/// Entries of a list of numbers, whatever its stride.
inline std::int32_t number_in(const tensor_view& list, std::int64_t entry) noexcept {
  return static_cast<const std::int32_t*>(list.data)[entry * list.stride[0]];
}

}  // namespace tessera::checks
