// The draw of a problem: options, presence, types, dims, extents.
#include "call_problem.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <tessera/spec/lower.hpp>

#include "../reference/operations.hpp"
#include "call_dims.hpp"

namespace tessera::support {

namespace {

class problem_draw {
 public:
  problem_draw(const operation& op, random_source& random, const call_wishes& wishes)
      : op_(op), form_(*op.form), random_(random), wishes_(wishes), problem_(op) {
    density_ = wishes.density ? *wishes.density : random.pick({0.05, 0.15, 0.3, 0.6});
  }

  /// One attempt; false if what came out is not legal.
  bool draw() {
    for (std::size_t i = 0; i < form_.options.size(); ++i) {
      const bool is_set = form_.options[i].required || has({true, i});
      if ((op_.excluded >> i & 1u) == 0 && is_set) draw_option(form_.options[i]);
    }
    call_ = {.op = &op_, .tensors = problem_.tensors.data(), .options = problem_.options.data()};
    if (!draw_presence()) return false;
    draw_types();
    // Most draws are nothing for the row, whatever their extents.
    if (wishes_.row != nullptr && !row_runs_the_least() && random_.chance(0.98)) return false;
    dims_draw dims(call_, wishes_, random_);
    dims.draw();
    if (dims.takes_more_than(8 * wishes_.work)) return false;
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
    dims_draw(call_, wishes_, random_).take_the_least();
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
      // Tensors that may be codes are no operands.
      const bool may_be_codes = form.types.has(dtype::u8) || form.types.has(dtype::i8) ||
                                (form.types.has(dtype::f32) && form.types.has(dtype::f8_e4m3));
      const bool decides =
          (op_.required >> i & 1u) != 0 && form.types.has(wishes_.type) && !may_be_codes;
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

  /// Options that say a dim have its extent where some product needs it, else none.
  void say_dims_by_options() {
    for (std::size_t i = 0; i < form_.dims.size(); ++i) {
      if (form_.dims[i].option.empty() || form_.dims[i].source == dim_source::formula) continue;
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
  double density_ = 0;
  std::uint32_t typed_ = 0;
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
