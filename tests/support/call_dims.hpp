// The draw of a problem's dims: no product of two tensors takes too long, no tensor is too large.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/spec/declaration.hpp>

#include "../reference/operations.hpp"
#include "call_problem.hpp"
#include "random.hpp"

namespace tessera::support {

/// Extents at which loops change their course.
inline constexpr std::array<std::int64_t, 31> edges{
    1,  2,  3,  5,  7,  8,  14,  15,  16,  17,  24,  28,  31,  32,  33, 40,
    63, 64, 65, 72, 80, 96, 112, 127, 128, 129, 192, 255, 256, 257, 300};

inline std::int64_t edge_extent(random_source& random, std::int64_t most) {
  if (most <= 0) return 0;
  if (random.chance(0.2)) return random.between(1, most);
  const auto end = std::upper_bound(edges.begin(), edges.end(), most);
  return edges[static_cast<std::size_t>(random.below(end - edges.begin()))];
}

/// Draws `call.dims`; the call has its operation, its tensors' presence and its layout.
class dims_draw {
 public:
  dims_draw(bound_call& call, const call_wishes& wishes, random_source& random)
      : call_(call),
        form_(call.form()),
        wishes_(wishes),
        random_(random),
        known_(reference::reference_of(call.op->name)) {
    for (const tensor_form& form : form_.tensors) {
      if (form.holds != tensor_contents::page_numbers || form.counts < 0) continue;
      const tensor_form*& table = tables_[static_cast<std::size_t>(form.counts)];
      if (table == nullptr) table = &form;
    }
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      if (form_.dims[i].source == dim_source::tensor ||
          is_said_by_options(static_cast<std::int8_t>(i))) {
        factors_ |= 1u << i;
      }
    }
  }

  /// Extents of all dims, none of them too much work together.
  void draw() {
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      const std::int64_t most = std::min(form_.dims[i].most, wishes_.longest);
      drawn_[i] = is_fixed(i) ? *wishes_.extents[i] : drawn_extent(i, most);
      for (std::size_t other = 0; other < i; ++other) {
        if (form_.dims[other].label != form_.dims[i].label || is_fixed(i)) continue;
        if (random_.chance(0.4)) drawn_[i] = drawn_[other];
      }
      if (rule_of(i) != nullptr && !is_fixed(i)) {
        const bool none = form_.dims[i].least == 0 && random_.chance(0.03);
        drawn_[i] = none ? 0 : random_.pick<std::int64_t>({1, 1, 2, 3, 4, 5, 8});
      }
    }
    std::vector<std::size_t> order(form_.dims.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      std::swap(order[i], order[random_.bits() % (i + 1)]);
    }
    find_pairs();
    settle_dims();
    for (std::size_t turn = 0; takes_more_than(wishes_.work) && turn < 16 * order.size(); ++turn) {
      const std::size_t dim = order[turn / 4 % order.size()];
      if (is_fixed(dim) || drawn_[dim] <= std::max<std::int64_t>(least_of(dim), 1)) continue;
      drawn_[dim] = std::max(least_of(dim), edge_extent(random_, drawn_[dim] - 1));
      settle_dims();
    }
  }

  /// The least of all extents that have one of their own.
  void take_the_least() {
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      drawn_[i] = is_fixed(i) ? *wishes_.extents[i] : std::max<std::int64_t>(least_of(i), 1);
    }
    settle_dims();
  }

  /// Whether that is more than the work: the largest product of the dims of two required tensors,
  /// or elements of one that may be there: of a pool, most of which nobody reads, or of states that
  /// a reference keeps; or what the reference says that it takes.
  bool takes_more_than(double work) const {
    for (const std::uint32_t pair : pairs_) {
      if (extent_product(pair) > work) return true;
    }
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      if ((call_.op->taken >> i & 1u) != 0 && elements_of(i) > work) return true;
    }
    return known_ != nullptr && known_->steps != nullptr && known_->steps(call_) > work;
  }

 private:
  bool is_fixed(std::size_t dim) const { return wishes_.extents[dim].has_value(); }

  /// Pages are as many as the table has room for.
  const tensor_form* table_of_pages(std::size_t dim) const { return tables_[dim]; }
  const multiple_rule* rule_of(std::size_t dim) const {
    for (const multiple_rule& rule : form_.multiples) {
      if (rule.of == static_cast<int>(dim)) return &rule;
    }
    return nullptr;
  }
  std::int64_t least_of(std::size_t dim) const {
    const bool divides = std::ranges::any_of(form_.multiples, [&](const multiple_rule& rule) {
      return rule.by == static_cast<int>(dim);
    });
    return divides ? std::max<std::int64_t>(form_.dims[dim].least, 1) : form_.dims[dim].least;
  }

  std::int64_t drawn_extent(std::size_t dim, std::int64_t most) {
    const std::int64_t least = least_of(dim);
    if (least == 0 && random_.chance(0.03)) return 0;
    const std::int64_t small = random_.pick<std::int64_t>({1, 1, 2, 3});
    return std::clamp(random_.chance(0.4) ? small : edge_extent(random_, most), least,
                      std::max(most, least));
  }

  /// What follows: multiples, numbers of pages, formulas.
  void settle_dims() {
    call_.owners.fill(0);
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      call_.dims[i] = form_.dims[i].source == dim_source::contents ? 0 : drawn_[i];
    }
    for (const multiple_rule& rule : form_.multiples) {
      const auto of = static_cast<std::size_t>(rule.of);
      if (!is_fixed(of)) call_.dims[of] *= call_.dims[static_cast<std::size_t>(rule.by)];
    }
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      const tensor_form* const table = table_of_pages(i);
      if (table == nullptr || is_fixed(i)) continue;
      const shape_form& shape =
          form_.shape(static_cast<std::size_t>(table - form_.tensors.data()), call_.layout);
      std::int64_t slots = drawn_[i] % 4;  // pages of nobody
      if (shape.rank == 2) {
        slots += extent_of(call_, shape.axes[0]) * extent_of(call_, shape.axes[1]);
      }
      call_.dims[i] = std::max(slots, form_.dims[i].least);
    }
    for (const tensor_form& form : form_.tensors) {
      if (form.holds == tensor_contents::shared_pages) continue;
      const bool slots = form.holds == tensor_contents::slots;  // as many as are named
      if (form.apart < 0 && !slots) continue;                   // as many again
      const auto of = static_cast<std::size_t>(form.counts);
      const auto list = static_cast<std::size_t>(&form - form_.tensors.data());
      const std::int64_t named = extent_of(call_, form_.shape(list, call_.layout).axes[0]);
      if (!is_fixed(of)) call_.dims[of] = std::max(call_.dims[of], (slots ? 1 : 2) * named);
    }
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      if (form_.dims[i].source == dim_source::formula) call_.dims[i] = form_.dims[i].value(call_);
    }
  }

  /// Bits of the dims of a tensor's axes; those of a table instead of the pages it counts.
  std::uint32_t dims_of(std::size_t tensor) const {
    std::uint32_t bits = 0;
    const shape_form& shape = form_.shape(tensor, call_.layout);
    for (int at = 0; at < shape.rank; ++at) {
      const axis_form& axis = shape.axes[static_cast<std::size_t>(at)];
      const std::int8_t dim = axis.dim;
      if (dim < 0) continue;
      if (is_said_by_options(axis.times)) bits |= 1u << axis.times;
      const tensor_form* const table = table_of_pages(static_cast<std::size_t>(dim));
      const auto list = table != nullptr ? table - form_.tensors.data() : 0;
      if (table != nullptr && call_.has(static_cast<std::size_t>(list))) {
        bits |= dims_of(static_cast<std::size_t>(list));
      } else {
        bits |= 1u << dim;
      }
    }
    return bits;
  }
  /// A factor of axes that no tensor decides.
  bool is_said_by_options(std::int8_t dim) const {
    if (dim < 0) return false;
    const auto& factor = form_.dims[static_cast<std::size_t>(dim)];
    return factor.source == dim_source::formula && !factor.option.empty();
  }
  double extent_product(std::uint32_t dims) const {
    double product = 1;
    for (std::uint32_t left = dims & factors_; left != 0; left &= left - 1) {
      product *=
          static_cast<double>(call_.dims[static_cast<std::size_t>(std::countr_zero(left))] + 1);
    }
    return product;
  }
  /// The dims of each two required tensors.
  void find_pairs() {
    std::array<std::uint32_t, max_tensors> dims{};
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      if ((call_.op->required >> i & 1u) != 0) dims[i] = dims_of(i);
    }
    for (std::size_t a = 0; a < form_.tensors.size(); ++a) {
      for (std::size_t b = a; b < form_.tensors.size(); ++b) {
        const std::uint32_t both = dims[a] | dims[b];
        const bool is_part = std::ranges::any_of(
            pairs_, [&](std::uint32_t other) { return (other | both) == other; });
        if (!is_part) pairs_.push_back(both);
      }
    }
  }
  double elements_of(std::size_t tensor) const {
    double product = 1;
    const shape_form& shape = form_.shape(tensor, call_.layout);
    for (int at = 0; at < shape.rank; ++at) {
      product *= static_cast<double>(extent_of(call_, shape.axes[static_cast<std::size_t>(at)]));
    }
    return product;
  }

  bound_call& call_;
  const signature& form_;
  const call_wishes& wishes_;
  random_source& random_;
  std::array<std::int64_t, max_dims> drawn_{};
  std::vector<std::uint32_t> pairs_;
  const reference::operation_reference* known_;
  std::array<const tensor_form*, max_dims> tables_{};  ///< of the pages that a dim counts
  std::uint32_t factors_ = 0;                          ///< dims that products are made of
};

}  // namespace tessera::support
