// What a mask functor may say of more than one pair, beside `classify` (prim/common/hooks.hpp):
// which keys of a tile its rows see, and what a row sees of its columns.
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::cpu {

/// Keys one behind the other, and how much of them some rows see; `skip`: there are none.
struct key_run {
  prim::key_interval keys{};
  prim::tile_visibility seen = prim::tile_visibility::skip;
};

/// `first_run(tile)`: the first keys of the tile that some of its rows see. A tile that has holes
/// for all rows is attended to run by run; one that all rows see is one run.
template <class Mask>
concept finds_runs = requires(const Mask& mask, const prim::score_tile& tile) {
  { mask.first_run(tile) } -> std::same_as<key_run>;
};

/// `rows_of_block()`: query rows [n rows, (n + 1) rows) see the same keys, as a rule; 0: none do.
/// No register tile has rows of two blocks, unless blocks are small.
template <class Mask>
concept cuts_rows = requires(const Mask& mask) {
  { mask.rows_of_block() } -> std::same_as<std::int64_t>;
};

/// `hide_row(at, key0, begin, end, scores)`: sets the scores of hidden columns in [begin, end) to
/// -inf; column c is key key0 + c of the row of `at`. Instead of a question about each pair.
template <class Mask>
concept hides_rows = requires(const Mask& mask, const position& at, std::int64_t key0, int column,
                              float* scores) {
  mask.hide_row(at, key0, column, column, scores);
};

}  // namespace tessera::kernels::attention::cpu
