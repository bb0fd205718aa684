// Rows of an attention call that is too large to be evaluated as a whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>

#include "flash_attention.hpp"
#include "operations.hpp"

namespace tessera::reference {

/// `count` positions in [0, size), both ends among them.
inline std::set<std::int64_t> spread(std::int64_t count, std::int64_t size) {
  std::set<std::int64_t> chosen;
  if (size == 0) return chosen;
  for (std::int64_t n = 0; n < count; ++n) {
    chosen.insert(count > 1 ? (size - 1) * n / (count - 1) : size - 1);
  }
  return chosen;
}

/// Rows of `args.out`, which is tensor `out` of its signature: the ends of some heads of the first
/// and last entry, and rows in between. Errors are relative to the row's largest element. `stored`:
/// the same call on the numbers that rows may store of it.
template <class Hooks = no_hooks>
output_sample sampled_rows(const flash_attention_args& args, const flash_attention_args& stored,
                           const flash_attention_options& options, std::size_t out,
                           const sample_plan& plan, Hooks hooks = {}) {
  const flash_extents size = extents_of(args);
  output_sample sample;
  sample.exact.tensor = sample.as_stored.tensor = out;
  const auto add = [](std::vector<double>& to, const std::vector<double>& row) {
    to.insert(to.end(), row.begin(), row.end());
  };
  for (const std::int64_t b : spread(std::min<std::int64_t>(size.entries, 2), size.entries)) {
    const used_rows rows = rows_of(args, b);
    for (const std::int64_t h : spread(plan.heads, size.q_heads)) {
      const flash_head<exact, Hooks> truth(args, options, b, h, hooks);
      const flash_head<as_stored, Hooks> peer(stored, options, b, h, hooks);
      for (const std::int64_t i : spread(plan.rows_per_head, rows.q_length)) {
        add(sample.exact.values, truth.row(i).out);
        add(sample.as_stored.values, peer.row(i).out);
        for (std::int64_t d = 0; d < size.v_head_dim; ++d) {
          const std::int64_t row = rows.q_begin + i;
          sample.computed.push_back(size.packed ? at(args.out, row, h, d)
                                                : at(args.out, b, row, h, d));
        }
      }
    }
  }
  return sample;
}
template <class Hooks = no_hooks>
output_sample sampled_rows(const flash_attention_args& args, const flash_attention_options& options,
                           std::size_t out, const sample_plan& plan, Hooks hooks = {}) {
  return sampled_rows(args, args, options, out, plan, hooks);
}

}  // namespace tessera::reference
