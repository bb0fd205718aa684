// Work items of whole tokens, and blocks of a token's row: loaded as floats, stored, cleared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/schedule_cpu.hpp>
#include <tessera/kernels/losses/cpu/blocks.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::losses::cpu {

/// Tokens in work items of some consecutive ones.
template <class Isa>
class token_items {
 public:
  explicit token_items(const loss_tokens& tokens)
      : tokens_(tokens), rows_(losses_schedule::rows_of_item(tokens.classes)) {}

  std::int64_t count() const { return (count_of<Isa>(tokens_) + rows_ - 1) / rows_; }

  /// Calls body(place, weight) for each token of a work item.
  template <class Body>
  void for_each(std::int64_t item, const Body& body) const {
    const std::int64_t end = std::min((item + 1) * rows_, count_of<Isa>(tokens_));
    for (std::int64_t row = item * rows_; row < end; ++row) {
      const token_place at = place_of<Isa>(tokens_, row);
      body(at, weight_of<Isa>(tokens_, at));
    }
  }

 private:
  const loss_tokens& tokens_;
  std::int64_t rows_;
};

/// Elements [first, first + count) of a token's row.
template <class Isa>
TESSERA_INLINE void load_block(const token_rows& from, const token_place& at, std::int64_t first,
                               int count, float_block& to) {
  prim::load_row<Isa>(from, offset_of<Isa>(from, at) + first, count, to.at);
}
template <class Isa>
TESSERA_INLINE void store_block(const token_rows& to, const token_place& at, std::int64_t first,
                                int count, const float_block& from) {
  prim::store_row<Isa>(to, offset_of<Isa>(to, at) + first, count, from.at);
}

/// Zeros, if there is such a tensor: the gradient of a token of weight 0.
template <class Isa>
void clear_row(const token_rows& rows, const token_place& at, std::int64_t columns) {
  if (rows.data == nullptr) return;
  prim::with_elements<Isa>(rows, [&](auto* elements) {
    using element = std::remove_pointer_t<decltype(elements)>;
    auto* const row = elements + offset_of<Isa>(rows, at);
    std::fill(row, row + columns, element(0.0f));
  });
}

}  // namespace tessera::kernels::losses::cpu
