// The draw of a problem: options, presence, types, dims, extents.
#include "call_problem.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <tessera/spec/lower.hpp>

#include "../reference/operations.hpp"

namespace tessera::support {

namespace {

/// Extents at which loops change their course.
constexpr std::array<std::int64_t, 31> edges{1,   2,   3,   5,   7,   8,   14,  15,  16, 17, 24,
                                             28,  31,  32,  33,  40,  63,  64,  65,  72, 80, 96,
                                             112, 127, 128, 129, 192, 255, 256, 257, 300};

std::int64_t edge_extent(random_source& random, std::int64_t most) {
  if (most <= 0) return 0;
  if (random.chance(0.2)) return random.between(1, most);
  const auto end = std::upper_bound(edges.begin(), edges.end(), most);
  return edges[static_cast<std::size_t>(random.below(end - edges.begin()))];
}

class problem_draw {
 public:
  problem_draw(const operation& op, random_source& random, const call_wishes& wishes)
      : op_(op), form_(*op.form), random_(random), wishes_(wishes), problem_(op) {
    density_ = wishes.density ? *wishes.density : random.pick({0.05, 0.15, 0.3, 0.6});
  }

  /// One attempt; false if what came out is not legal.
  bool draw() {
    for (std::size_t i = 0; i < form_.options.size(); ++i) {
      if ((op_.excluded >> i & 1u) == 0 && has({true, i})) draw_option(form_.options[i]);
    }
    call_ = {.op = &op_, .tensors = problem_.tensors.data(), .options = problem_.options.data()};
    if (!draw_presence()) return false;
    draw_types();
    // Most draws are nothing for the row, whatever their extents.
    if (wishes_.row != nullptr && !row_runs_the_least() && random_.chance(0.98)) return false;
    draw_dims();
    if (work() > 8 * wishes_.work) return false;
    return is_legal() && (wishes_.row == nullptr || row_runs());
  }

  owned_problem& problem() { return problem_; }

 private:
  /// With the dims as they are; draws the extents that dims leave open.
  bool is_legal() {
    say_dims_by_options();
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) draw_extents(i);
    status failure;
    call_.owners.fill(-1);
    return checks::are_options(call_, failure) && checks::are_shapes(call_, 0, failure);
  }
  bool row_runs() const { return runs(*wishes_.kind, *wishes_.row, problem_.view()); }

  /// Whether the row runs what was drawn so far with the least of all extents; true if that is no
  /// legal problem.
  bool row_runs_the_least() {
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      drawn_[i] = is_fixed(i) ? *wishes_.extents[i] : std::max<std::int64_t>(least_of(i), 1);
    }
    settle_dims();
    return !is_legal() || row_runs();
  }

  bool is_wished(const call_trait& trait) const {
    return std::ranges::any_of(wishes_.traits, [&](const call_trait& wish) {
      return wish.is_option == trait.is_option && wish.index == trait.index;
    });
  }
  bool has(const call_trait& trait) { return is_wished(trait) || random_.chance(density_); }

  template <class Value>
  Value& option(const option_form& form) {
    return text::option_at<Value>(form, problem_.options.data());
  }
  double drawn_number(option_limit limit) {
    switch (limit) {
      case option_limit::probability:
        return random_.pick({0.1, 0.25, 0.5, 0.9});
      case option_limit::positive_float:
        return random_.pick({0.5, 2.0, 30.0, 50.0});
      default:
        return random_.pick({0.0, 1.0, 0.3, 0.125, -0.25});
    }
  }
  std::int64_t drawn_integer(const option_form& form) {
    const std::int64_t least = form.limit == option_limit::at_least ? form.least : 0;
    if (random_.chance(0.03)) return std::numeric_limits<std::int64_t>::max();
    return std::max(least, random_.chance(0.5)
                               ? random_.pick<std::int64_t>({0, 1, 2, 7, 8, 15, 16, 33, 63, 64})
                               : random_.below(wishes_.longest));
  }
  void draw_option(const option_form& form) {
    switch (form.type) {
      case option_type::flag:
        option<bool>(form) = !option<bool>(form);
        return;
      case option_type::integer:
        option<std::int64_t>(form) = drawn_integer(form);
        return;
      case option_type::natural:
        option<std::uint64_t>(form) = random_.bits();
        return;
      case option_type::number:
        option<double>(form) = drawn_number(form.limit);
        return;
      case option_type::optional_integer:
        option<std::optional<std::int64_t>>(form) = drawn_integer(form);
        return;
      case option_type::optional_number:
        option<std::optional<double>>(form) = drawn_number(form.limit);
        return;
      case option_type::choice:
        option<std::uint8_t>(form) = static_cast<std::uint8_t>(
            random_.below(static_cast<std::int64_t>(form.enumerators.size())));
        return;
    }
  }

  /// A layout is what tensors and options make of it: tried until it is the one they are drawn for.
  bool draw_presence() {
    int layout = static_cast<int>(random_.below(static_cast<std::int64_t>(form_.layouts.size())));
    for (int attempt = 0; attempt < 4; ++attempt) {
      draw_presence_in(layout);
      call_.layout = form_.layout_of != nullptr ? form_.layout_of(call_) : 0;
      if (call_.layout == layout) return drop_forbidden();
      layout = call_.layout;
    }
    return false;
  }

  /// Offsets and pages make a layout what it is, together with the lengths of pages.
  bool makes_layout(std::size_t tensor) const {
    const auto is_list = [](const tensor_form& form) {
      return form.holds == tensor_contents::offsets || form.holds == tensor_contents::page_numbers;
    };
    bool everywhere = true;
    for (std::size_t layout = 0; layout < form_.layouts.size(); ++layout) {
      everywhere = everywhere && form_.shape(tensor, static_cast<int>(layout)).rank >= 0;
    }
    const bool used = std::ranges::any_of(form_.tensors, [&](const tensor_form& form) {
      return is_list(form) && form.used_by == static_cast<int>(tensor);
    });
    return !everywhere && (used || is_list(form_.tensors[tensor]));
  }

  void draw_presence_in(int layout) {
    call_.present = 0;
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      tensor_view& view = problem_.tensors[i];
      view = {};
      if ((op_.taken >> i & 1u) == 0) continue;
      const shape_form& shape = form_.shape(i, layout);
      const tensor_form& form = form_.tensors[i];
      const bool required = (op_.required >> i & 1u) != 0;
      if (shape.rank < 0) continue;
      const bool likely = form.is_output() && form.free && random_.chance(0.6);
      if (!required && !makes_layout(i) && !likely && !has({false, i})) continue;
      view.type = dtype::u8;  // until types are drawn
      view.rank = shape.rank;
      call_.present |= 1u << i;
    }
  }

  bool drop_forbidden() {
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      if (!call_.has(i) || is_allowed(call_, i)) continue;
      problem_.tensors[i] = {};
      call_.present &= ~(1u << i);
    }
    return std::ranges::all_of(wishes_.traits, [&](const call_trait& trait) {
      return trait.is_option || call_.has(trait.index);
    });
  }

  void draw_types() {
    for (int at = 0; at < op_.tensor_count; ++at) {
      const std::size_t i = op_.order[static_cast<std::size_t>(at)];
      if (!call_.has(i)) continue;
      const tensor_form& form = form_.tensors[i];
      std::vector<dtype> types;
      for (int number = 1; number < static_cast<int>(dtype_names.size()); ++number) {
        if (form.types.has(static_cast<dtype>(number))) types.push_back(static_cast<dtype>(number));
      }
      if (form.like >= 0)
        types.push_back(problem_.tensors[static_cast<std::size_t>(form.like)].type);
      dtype type = random_.pick(std::span<const dtype>(types));
      const bool decides = (op_.required >> i & 1u) != 0 && form.types.has(wishes_.type);
      if (decides) type = wishes_.type;
      // A gradient and what it belongs to, whichever comes first.
      for (std::size_t other = 0; other < form_.tensors.size(); ++other) {
        const bool pair = form_.tensors[other].gradient_of == static_cast<int>(i) ||
                          form.gradient_of == static_cast<int>(other);
        if (pair && call_.has(other) && other != i && typed_ >> other & 1u) {
          type = problem_.tensors[other].type;
        }
      }
      problem_.tensors[i].type = type;
      typed_ |= 1u << i;
    }
  }

  bool is_fixed(std::size_t dim) const { return wishes_.extents[dim].has_value(); }

  /// Pages are as many as the table has room for.
  const tensor_form* table_of_pages(std::size_t dim) const {
    for (const tensor_form& form : form_.tensors) {
      if (form.holds == tensor_contents::page_numbers && form.counts == static_cast<int>(dim)) {
        return &form;
      }
    }
    return nullptr;
  }
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

  /// Extents of all dims, none of them too much work together.
  void draw_dims() {
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
    for (std::size_t turn = 0; work() > wishes_.work && turn < 16 * order.size(); ++turn) {
      const std::size_t dim = order[turn / 4 % order.size()];
      if (is_fixed(dim) || drawn_[dim] <= std::max<std::int64_t>(least_of(dim), 1)) continue;
      drawn_[dim] = std::max(least_of(dim), edge_extent(random_, drawn_[dim] - 1));
      settle_dims();
    }
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
      if (form.apart < 0) continue;  // as many again as are named
      const auto of = static_cast<std::size_t>(form.counts);
      const auto list = static_cast<std::size_t>(&form - form_.tensors.data());
      const std::int64_t named = extent_of(call_, form_.shape(list, call_.layout).axes[0]);
      if (!is_fixed(of)) call_.dims[of] = std::max(call_.dims[of], 2 * named);
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
      const std::int8_t dim = shape.axes[static_cast<std::size_t>(at)].dim;
      if (dim < 0) continue;
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
  double extent_product(std::uint32_t dims) const {
    double product = 1;
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      const bool counts = (dims >> i & 1u) != 0 && form_.dims[i].source == dim_source::tensor;
      if (counts) product *= static_cast<double>(call_.dims[i] + 1);
    }
    return product;
  }
  /// The dims of each two required tensors.
  void find_pairs() {
    std::array<std::uint32_t, max_tensors> dims{};
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      if ((op_.required >> i & 1u) != 0) dims[i] = dims_of(i);
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
  /// The largest product of the dims of two required tensors, or elements of one: of a pool, most
  /// of which nobody reads.
  double work() const {
    double most = 0;
    for (const std::uint32_t pair : pairs_) most = std::max(most, extent_product(pair));
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      if (call_.has(i)) most = std::max(most, elements_of(i));
    }
    return most;
  }
  double elements_of(std::size_t tensor) const {
    double product = 1;
    const shape_form& shape = form_.shape(tensor, call_.layout);
    for (int at = 0; at < shape.rank; ++at) {
      product *= static_cast<double>(extent_of(call_, shape.axes[static_cast<std::size_t>(at)]));
    }
    return product;
  }

  /// Options that say a dim have its extent where some product needs it, else none.
  void say_dims_by_options() {
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      if (form_.dims[i].option.empty()) continue;
      bool needed = false;
      for (std::size_t tensor = 0; tensor < form_.tensors.size(); ++tensor) {
        for (const axis_form& axis : form_.shape(tensor, call_.layout).axes) {
          needed |= axis.times == static_cast<int>(i);
        }
      }
      const std::int64_t said = needed ? call_.dims[i] : 0;
      auto* const options = reinterpret_cast<std::byte*>(problem_.options.data());
      std::memcpy(options + form_.dims[i].option_offset, &said, sizeof said);
    }
  }

  void draw_extents(std::size_t tensor) {
    const shape_form& shape = form_.shape(tensor, call_.layout);
    if (!call_.has(tensor)) return;
    for (std::size_t at = 0; at < static_cast<std::size_t>(shape.rank); ++at) {
      const axis_form& axis = shape.axes[at];
      std::int64_t& extent = problem_.tensors[tensor].extent[at];
      extent = extent_of(call_, axis);
      const bool broadcasts =
          axis.rule == extent_rule::one_or_exact || axis.rule == extent_rule::one_or_at_least;
      const bool longer =
          axis.rule == extent_rule::at_least || axis.rule == extent_rule::one_or_at_least;
      if (longer) extent += random_.pick({0, 0, 1, 9});
      if (broadcasts && random_.chance(0.35)) extent = 1;
    }
  }

  const operation& op_;
  const signature& form_;
  random_source& random_;
  const call_wishes& wishes_;
  owned_problem problem_;
  bound_call call_;
  std::array<std::int64_t, max_dims> drawn_{};
  double density_ = 0;
  std::uint32_t typed_ = 0;
  std::vector<std::uint32_t> pairs_;
};
}  // namespace

std::optional<owned_problem> drawn_problem(const operation& op, random_source& random,
                                           const call_wishes& wishes) {
  call_wishes now = wishes;
  const reference::operation_reference* const known = reference::reference_of(op.name);
  for (std::size_t i = 0; wishes.row != nullptr && i < op.form->dims.size(); ++i) {
    if (known == nullptr || known->row_extent == nullptr) break;
    const std::int64_t extent = known->row_extent(wishes.row->config, op.form->dims[i].symbol);
    if (extent > 0) now.extents[i] = extent;
  }
  for (int attempt = 0; attempt < wishes.attempts; ++attempt) {
    // Traits may need each other: more of them the longer nothing is legal.
    if (wishes.density) now.density = *wishes.density + (attempt % 40 > 20 ? 0.2 : 0.0);
    problem_draw draw(op, random, now);
    if (draw.draw()) return std::move(draw.problem());
  }
  return std::nullopt;
}

}  // namespace tessera::support
