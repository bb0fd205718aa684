// The verdict on a call that is too large for the oracle: a sample of its rows, judged by the
// comparator of the tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>

#include "tests/reference/flash_attention.hpp"
#include "tests/support/compare.hpp"

namespace tessera::bench {

/// Which rows are looked at: the ends of the first, middle and last head of the first and last
/// entry, and rows in between.
struct sample_plan {
  std::int64_t rows_per_head = 4;
  std::int64_t heads = 2;
};

namespace detail {

/// `count` positions in [0, size), both ends among them.
inline std::set<std::int64_t> spread(std::int64_t count, std::int64_t size) {
  std::set<std::int64_t> chosen;
  if (size == 0) return chosen;
  for (std::int64_t n = 0; n < count; ++n) {
    chosen.insert(count > 1 ? (size - 1) * n / (count - 1) : size - 1);
  }
  return chosen;
}

}  // namespace detail

/// Compares `args.out`, which must have been computed, with the definition evaluated in double.
/// The bound is the comparator's: twice the error of the same formula in the tensors' precision, or
/// the floor of the dtype.
inline support::comparison sampled_check(const flash_attention_args& args,
                                         const flash_attention_options& options,
                                         const sample_plan& plan = {}) {
  const reference::flash_extents size = reference::extents_of(args);
  std::vector<double> ours;
  std::vector<double> truth;
  std::vector<double> peer;
  for (const std::int64_t b :
       detail::spread(std::min<std::int64_t>(size.entries, 2), size.entries)) {
    const reference::used_rows rows = reference::rows_of(args, b);
    for (const std::int64_t h : detail::spread(plan.heads, size.q_heads)) {
      const reference::flash_head<reference::exact> exact(args, options, b, h);
      const reference::flash_head<reference::as_stored> stored(args, options, b, h);
      for (const std::int64_t i : detail::spread(plan.rows_per_head, rows.q_length)) {
        const reference::flash_row want = exact.row(i);
        const reference::flash_row near = stored.row(i);
        truth.insert(truth.end(), want.out.begin(), want.out.end());
        peer.insert(peer.end(), near.out.begin(), near.out.end());
        for (std::int64_t d = 0; d < size.v_head_dim; ++d) {
          const std::int64_t row = rows.q_begin + i;
          ours.push_back(size.packed ? reference::at(args.out, row, h, d)
                                     : reference::at(args.out, b, row, h, d));
        }
      }
    }
  }
  using support::error_scale;
  const auto against = [&](const std::vector<double>& values) {
    return support::compare(values, truth, size.v_head_dim, error_scale::row);
  };
  return support::judged(against(ours), against(peer).error, support::floor_of("out", args.q.type));
}

}  // namespace tessera::bench
