// The args and options of any operation behind the C interface, read as its declaration says.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/option_text.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::c {

/// An operation as callers know it.
struct operation_name {
  std::int32_t number = 0;
  std::string_view name, family;
};

/// Those of every family, whether or not this build has rows of it; generated.
std::span<const operation_name> operation_names() noexcept;

/// The operation with a number.
inline status find_operation(std::int32_t number, found_operation& to) {
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) {
      if (operation_number(kind->number, op) != number) continue;
      to = {kind, &op};
      return {};
    }
  }
  for (const operation_name& known : operation_names()) {
    if (known.number != number) continue;
    return {status_code::no_row, std::string(known.name) +
                                     ": this build has no rows of the family " +
                                     std::string(known.family)};
  }
  return refuse("operation: is " + std::to_string(number) +
                ", which is the number of none; numbers are those of tessera_operation");
}

/// Room for the views of a call, of which `read_args` fills those that its operation has.
class view_list {
 public:
  tensor_view* data() noexcept { return reinterpret_cast<tensor_view*>(memory_.data()); }
  const tensor_view* data() const noexcept {
    return reinterpret_cast<const tensor_view*>(memory_.data());
  }

 private:
  alignas(tensor_view) std::array<std::byte, max_tensors * sizeof(tensor_view)> memory_;
};

/// The tensors of a call; `to` has a view per tensor of the operation's signature.
inline status read_args(const void* from, const operation& op, tensor_view* to) {
  if (from == nullptr) return refuse("args: is NULL");
  struct {
    std::uint32_t size, reserved;
    std::array<const tessera_tensor*, max_tensors> tensors;
  } known;  // NOLINT: filled by `read_bytes`
  const auto bytes_of = [](std::size_t tensors) {
    return offsetof(decltype(known), tensors) + tensors * sizeof(void*);
  };
  const struct_name name{"args", op.name};
  const signature& form = *op.form;
  const std::size_t count = form.tensors.size();
  const std::size_t first = form.first_tensors != 0 ? form.first_tensors : count;
  const auto bytes = std::as_writable_bytes(std::span(&known, 1)).first(bytes_of(count));
  if (status done = read_bytes(from, name, bytes_of(first), bytes); !done) return done;
  if (status done = check_flags(name, "reserved", known.reserved, 0); !done) return done;
  for (std::size_t i = 0; i < count; ++i) {
    if (status done = read_tensor(known.tensors[i], form.tensors[i].name, to[i]); !done) {
      return done;
    }
  }
  return {};
}

/// Sets an option to the 8 bytes that C has of it; false if its type has no such value.
inline bool write_option(const option_form& option, std::uint64_t word, void* options) noexcept {
  const auto integer = static_cast<std::int64_t>(word);
  const auto number = std::bit_cast<double>(word);
  switch (option.type) {
    case option_type::flag:
      text::option_at<bool>(option, options) = word != 0;
      return word <= 1;
    case option_type::integer:
      text::option_at<std::int64_t>(option, options) = integer;
      return true;
    case option_type::natural:
      text::option_at<std::uint64_t>(option, options) = word;
      return true;
    case option_type::number:
      text::option_at<double>(option, options) = number;
      return true;
    case option_type::optional_integer:
      text::option_at<std::optional<std::int64_t>>(option, options) = integer;
      return true;
    case option_type::optional_number:
      text::option_at<std::optional<double>>(option, options) = number;
      return true;
    case option_type::choice:
      text::option_at<std::uint8_t>(option, options) = static_cast<std::uint8_t>(word);
      return word < option.enumerators.size();
  }
  return false;
}

/// The options of a call. A value counts if it is not zero or its bit in `given` is set.
inline status read_options(const void* from, const operation& op, void* to) {
  const signature& form = *op.form;
  std::memcpy(to, form.default_options, form.options_bytes);
  if (from == nullptr) return {};
  struct {
    std::uint32_t size, given;
    std::array<std::uint64_t, max_options> words;
  } known;  // NOLINT: filled by `read_bytes`
  const auto bytes_of = [](std::size_t options) {
    return offsetof(decltype(known), words) + options * sizeof(std::uint64_t);
  };
  const struct_name name{"options", op.name};
  const std::size_t count = form.options.size();
  const std::size_t first = form.first_options != 0 ? form.first_options : count;
  const auto bytes = std::as_writable_bytes(std::span(&known, 1)).first(bytes_of(count));
  if (status done = read_bytes(from, name, bytes_of(first), bytes); !done) return done;
  const std::uint64_t bits = (std::uint64_t{1} << count) - 1;
  if (status done = check_flags(name, "given", known.given, bits); !done) return done;
  for (std::size_t i = 0; i < count; ++i) {
    const option_form& option = form.options[i];
    if (known.words[i] == 0 && (known.given >> i & 1u) == 0) continue;
    if (write_option(option, known.words[i], to)) continue;
    const bool choice = option.type == option_type::choice;
    return refuse(std::string(option.name) + ": is " +
                  std::to_string(static_cast<std::int64_t>(known.words[i])) + ", must be 0 to " +
                  std::to_string(choice ? option.enumerators.size() - 1 : 1));
  }
  return {};
}

/// A call, as the library has it.
struct call_values {
  found_operation asked{};
  view_list tensors;
  alignas(std::uint64_t) std::array<std::byte, max_options_bytes> options;

  status read(std::int32_t operation, const void* args, const void* wanted) {
    if (status done = find_operation(operation, asked); !done) return done;
    if (status done = read_args(args, *asked.op, tensors.data()); !done) return done;
    return read_options(wanted, *asked.op, options.data());
  }
};

/// The device that all tensors of a call lie on.
inline status read_device(const operation& op, const tensor_view* tensors, device_id& device) {
  std::string_view first;
  for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
    const tensor_view& view = tensors[i];
    if (!view.present()) continue;
    const std::string_view name = op.form->tensors[i].name;
    if (first.empty()) {
      first = name;
      device = view.device;
    }
    if (view.device == device) continue;
    return refuse(std::string(name) + ": device is " + std::string(text_of(view.device)) + ", " +
                  std::string(first) + " has " + std::string(text_of(device)));
  }
  return {};
}

}  // namespace tessera::c
