#include "call_mutations.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include <tessera/spec/lower.hpp>

#include "../reference/operations.hpp"

namespace tessera::support {

namespace {

class mutation_list {
 public:
  explicit mutation_list(const call_data& legal) : legal_(legal), form_(*legal.op().form) {}

  std::vector<call_mutation> all() {
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) mutate_tensor(i);
    for (const option_form& option : form_.options) mutate_option(option);
    for (std::size_t i = 0; i < form_.dims.size(); ++i) mutate_dim(i);
    return std::move(list_);
  }

 private:
  static constexpr std::int64_t margin = 256;  ///< bytes behind every tensor of a legal call

  void add(std::string what, std::function<void(owned_problem&)> apply, bool option = false) {
    list_.push_back({std::move(what), option, std::move(apply)});
  }
  void on_view(std::size_t tensor, const std::string& what,
               std::function<void(tensor_view&)> apply) {
    add(std::string(form_.tensors[tensor].name) + " " + what,
        [=](owned_problem& call) { apply(call.tensors[tensor]); });
  }

  void mutate_tensor(std::size_t tensor) {
    const tensor_view view = legal_.tensors()[tensor];
    const tensor_form& form = form_.tensors[tensor];
    if (!view.present()) {
      std::size_t place = 0;  // of the first one there is
      while (!legal_.tensors()[legal_.op().order[place]].present()) ++place;
      const tensor_view first = legal_.tensors()[legal_.op().order[place]];
      return on_view(tensor, "given", [=](tensor_view& to) { to = first; });
    }
    on_view(tensor, "absent", [](tensor_view& to) { to = {}; });
    mutate_shape(tensor, view, form);
    on_view(tensor, "without memory", [](tensor_view& to) { to.data = nullptr; });
    on_view(tensor, "on another device", [](tensor_view& to) {
      to.device = {device_kind::cuda, 1};
    });
    on_view(tensor, "on cpu:3", [](tensor_view& to) { to.device = {device_kind::cpu, 3}; });
    on_view(tensor, "with stride 2",
            [](tensor_view& to) { to.stride[static_cast<std::size_t>(to.rank - 1)] = 2; });
    if (view.extent[0] > 1) {
      on_view(tensor, "with stride 2^60",
              [](tensor_view& to) { to.stride[0] = std::int64_t{1} << 60; });
    }
    if (size_of(view.type) > 1) {
      on_view(tensor, "one byte further",
              [](tensor_view& to) { to.data = static_cast<std::byte*>(to.data) + 1; });
    }
    if (form.is_output()) mutate_output(tensor);
    if (reference::decides_what_is_read(form_, tensor)) mutate_contents(tensor, view);
    if (form.holds == tensor_contents::positive) mutate_positive(tensor);
  }

  void mutate_shape(std::size_t tensor, const tensor_view& view, const tensor_form& form) {
    const int rank = view.rank;
    for (const int other : {rank + 1, 0, -1}) {
      on_view(tensor, "of rank " + std::to_string(other), [=](tensor_view& to) {
        if (other > rank) to.extent[static_cast<std::size_t>(rank)] = 1;
        to.rank = static_cast<std::int8_t>(other);
      });
    }
    const dtype other = form.types.has(dtype::f64) ? dtype::i64 : dtype::f64;
    on_view(tensor, "of another dtype", [=](tensor_view& to) { to.type = other; });
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
      const std::string name = "axis " + std::to_string(axis);
      mutate_longer(tensor, view, axis);
      on_view(tensor, name + " negative", [=](tensor_view& to) { to.extent[axis] = -1; });
    }
    on_view(tensor, "axis 0 of 2^62",
            [](tensor_view& to) { to.extent[0] = std::int64_t{1} << 62; });
  }

  /// The axis is longer by 1. What then ends behind the tensor's margin gets memory of its own: it
  /// would share some with whichever tensor lies next.
  void mutate_longer(std::size_t tensor, const tensor_view& view, std::size_t axis) {
    const auto element = static_cast<std::int64_t>(size_of(view.type));
    std::int64_t last = 0;
    bool forwards = true;
    for (std::size_t a = 0; a < static_cast<std::size_t>(view.rank); ++a) {
      const std::int64_t entries = std::max<std::int64_t>(view.extent[a] - 1, 0) + (a == axis);
      forwards =
          forwards && view.stride[a] >= 0 && view.stride[a] < (1 << 22) && entries < (1 << 22);
      if (forwards) last += entries * view.stride[a];
    }
    std::shared_ptr<std::vector<std::byte>> room;
    if (forwards && last < (1 << 24) && view.stride[axis] * element > margin) {
      room =
          std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>((last + 1) * element));
    }
    on_view(tensor, "axis " + std::to_string(axis) + " + 1", [=](tensor_view& to) {
      ++to.extent[axis];
      if (room != nullptr) to.data = room->data();
    });
  }

  void mutate_output(std::size_t tensor) {
    on_view(tensor, "read-only", [](tensor_view& to) { to.read_only = true; });
    on_view(tensor, "folded", [](tensor_view& to) { to.stride[0] = 0; });
    for (int at = 0; at < legal_.op().tensor_count; ++at) {
      const std::size_t other = legal_.op().order[static_cast<std::size_t>(at)];
      const tensor_view view = legal_.tensors()[other];
      const tensor_view output = legal_.tensors()[tensor];
      const auto bytes = [](const tensor_view& of) {
        return of.elements() * static_cast<std::int64_t>(size_of(of.type));
      };
      if (!view.present() || other == tensor || size_of(view.type) < size_of(output.type)) continue;
      // It reaches into the margin behind the other one, not into a third.
      if (bytes(output) > std::max(bytes(view), margin)) continue;
      const std::string name(form_.tensors[other].name);
      on_view(tensor, "where " + name + " lies", [=](tensor_view& to) { to.data = view.data; });
      if (bytes(output) > margin) continue;
      on_view(tensor, "over the end of " + name, [=](tensor_view& to) {
        std::int64_t last = 0;
        reference::for_each_element(view,
                                    [&](std::int64_t, std::int64_t offset) { last = offset; });
        to.data = static_cast<std::byte*>(view.data) +
                  last * static_cast<std::int64_t>(size_of(view.type));
      });
    }
  }

  /// The first number that is too large.
  std::int32_t beyond(std::size_t tensor) const {
    const tensor_form& form = form_.tensors[tensor];
    const auto counted = [&](std::int8_t dim) {
      return static_cast<std::int32_t>(legal_.call().dims[static_cast<std::size_t>(dim)]);
    };
    const bool numbers =
        form.holds == tensor_contents::page_numbers || form.holds == tensor_contents::indices ||
        form.holds == tensor_contents::indices_or_none || form.holds == tensor_contents::slots;
    if (numbers) return counted(form.counts);
    if (form.holds != tensor_contents::values) return counted(form.counts) + 1;
    for (std::size_t list = 0; list < form_.tensors.size(); ++list) {
      const tensor_form& table = form_.tensors[list];
      if (table.holds != tensor_contents::page_numbers) continue;
      if (table.used_by != static_cast<int>(tensor) || !legal_.call().has(list)) continue;
      const std::int64_t slots = legal_.tensors()[list].extent[1];
      return static_cast<std::int32_t>(slots) * counted(table.page) + 1;
    }
    return 1000;
  }

  void mutate_contents(std::size_t tensor, const tensor_view& view) {
    const std::int64_t entries = view.elements();
    const std::set<std::int64_t> places{0, 1, entries - 1};
    for (const std::int64_t place : places) {
      if (place < 0 || place >= entries) continue;
      for (const std::int32_t value :
           std::set{-1, beyond(tensor), 1000, std::numeric_limits<std::int32_t>::max()}) {
        add(std::string(form_.tensors[tensor].name) + " entry " + std::to_string(place) + " = " +
                std::to_string(value),
            [=](owned_problem& call) {
              const tensor_view& to = call.tensors[tensor];
              reference::for_each_element(to, [&](std::int64_t flat, std::int64_t offset) {
                if (flat == place) store(to, offset, value);
              });
            });
      }
    }
  }

  void mutate_positive(std::size_t tensor) {
    using limits = std::numeric_limits<float>;
    for (const double number : {0.0, -0.5, static_cast<double>(limits::infinity()),
                                static_cast<double>(limits::quiet_NaN())}) {
      add(sentence({form_.tensors[tensor].name, " entry 0 = ", number}),
          [=](owned_problem& call) { store(call.tensors[tensor], 0, number); });
    }
  }

  template <class Value>
  void set(const option_form& option, const std::string& what, Value value) {
    const auto apply = [=](owned_problem& call) {
      text::option_at<Value>(option, call.options.data()) = value;
    };
    add(std::string(option.name) + " = " + what, apply, true);
  }

  void mutate_option(const option_form& option) {
    using optional_number = std::optional<double>;
    using optional_integer = std::optional<std::int64_t>;
    constexpr double infinite = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
    switch (option.type) {
      case option_type::flag:
        return set(option, "true", true), set(option, "false", false);
      case option_type::integer:
        return set(option, "-1", std::int64_t{-1}), set(option, "-2^63", least),
               set(option, "0", std::int64_t{0}), set(option, "7", std::int64_t{7});
      case option_type::natural:
        return set(option, "7", std::uint64_t{7});
      case option_type::number:
        return set(option, "-1", -1.0), set(option, "inf", infinite), set(option, "nan", nan),
               set(option, "1", 1.0), set(option, "0.25", 0.25);
      case option_type::optional_integer:
        return set(option, "-1", optional_integer(-1)),
               set(option, "-2^63", optional_integer(least)), set(option, "7", optional_integer(7));
      case option_type::optional_number:
        if (option.required) set(option, "unset", optional_number());
        return set(option, "-1", optional_number(-1.0)),
               set(option, "inf", optional_number(infinite)),
               set(option, "nan", optional_number(nan)),
               set(option, "1e300", optional_number(1e300)), set(option, "0", optional_number(0.0)),
               set(option, "0.5", optional_number(0.5));
      case option_type::choice:
        return set(option, "99", std::uint8_t{99});
    }
  }

  /// The dim is the extent of some axis, not part of a product only.
  bool is_extent(std::size_t index) const {
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      const shape_form& shape = form_.shape(i, legal_.call().layout);
      for (int at = 0; at < shape.rank; ++at) {
        if (shape.axes[static_cast<std::size_t>(at)].dim == static_cast<int>(index)) return true;
      }
    }
    return false;
  }
  /// A dim beyond its limits, in every tensor that has it.
  void mutate_dim(std::size_t index) {
    const dim& of = form_.dims[index];
    if (of.source != dim_source::tensor || legal_.call().owners[index] < 0) return;
    if (!is_extent(index)) return;
    if (of.least > 0) set_dim(index, of.least - 1);
    if (of.most < 100000) set_dim(index, of.most + 1);
    for (const multiple_rule& rule : form_.multiples) {
      const auto by = static_cast<std::size_t>(rule.by);
      if (by == index) set_dim(index, legal_.call().dims[static_cast<std::size_t>(rule.of)] + 1);
    }
  }
  void set_dim(std::size_t index, std::int64_t extent) {
    const int layout = legal_.call().layout;
    add("every " + std::string(form_.dims[index].symbol) + " = " + std::to_string(extent),
        [=, form = &form_, dims = legal_.call().dims](owned_problem& call) {
          for (std::size_t i = 0; i < call.tensors.size(); ++i) {
            const shape_form& shape = form->shape(i, layout);
            for (std::size_t at = 0; at < static_cast<std::size_t>(std::max<int>(shape.rank, 0));
                 ++at) {
              const bool here = shape.axes[at].dim == static_cast<int>(index);
              if (!here) continue;
              const axis_form& axis = shape.axes[at];
              const std::int64_t times =
                  axis.times < 0 ? 1 : dims[static_cast<std::size_t>(axis.times)];
              call.tensors[i].extent[at] = extent * axis.factor * times + axis.plus;
            }
          }
        });
  }

  const call_data& legal_;
  const signature& form_;
  std::vector<call_mutation> list_;
};

}  // namespace

std::vector<call_mutation> mutations_of(const call_data& legal) {
  return mutation_list(legal).all();
}

status checked(const owned_problem& call, bool contents) {
  bound_call now{.op = call.op, .tensors = call.tensors.data(), .options = call.options.data()};
  status failure;
  device_id device;
  if (contents) {
    checks::is_call(now, &device, failure);
  } else {
    static_cast<void>(checks::are_options(now, failure) && checks::are_shapes(now, 0, failure) &&
                      checks::is_memory(now, &device, failure));
  }
  return failure;
}

std::string refusals_path(std::string_view op) {
  const char* const elsewhere = std::getenv("TESSERA_GOLDEN_DIR");
  const std::string folder = elsewhere != nullptr ? elsewhere : TESSERA_GOLDEN_DIR;
  return folder + "/refusals/" + std::string(op) + ".txt";
}

std::vector<refusal_section> refusals_of(std::string_view op) {
  std::vector<refusal_section> sections;
  std::ifstream file(refusals_path(op));
  const std::string head = "# " + std::string(op);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(head)) {
      sections.push_back({line.substr(std::min(line.size(), head.size() + 1)), {}});
    } else if (!sections.empty()) {
      sections.back().lines.push_back(std::move(line));
    }
  }
  return sections;
}

std::unique_ptr<call_data> legal_call(const operation& op, std::string_view fields) {
  random_source random(1);
  result<owned_problem> problem = whole_problem(op, fields);
  if (!problem) throw std::invalid_argument(std::string(fields) + ": " + problem.message());
  return std::make_unique<call_data>(
      *problem, random, memory_wishes{.row_major = true, .poison = false, .even = true});
}

}  // namespace tessera::support
