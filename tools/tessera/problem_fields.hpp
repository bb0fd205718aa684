// The fields of a problem's text, written one by one: " q=[1,2048,16,256]bf16 ...".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model_layers.hpp"

namespace tessera::tool {

/// Writes the fields of a problem.
class field_writer {
 public:
  explicit field_writer(const layer_call& call) : call_(call) {}

  /// A tensor of the layer's type, and one of another.
  field_writer& tensor(std::string_view name, std::initializer_list<std::int64_t> shape) {
    return tensor(name, shape, call_.type);
  }
  field_writer& tensor(std::string_view name, std::initializer_list<std::int64_t> shape,
                       dtype type) {
    text_ += fmt::format(" {}=[{}]{}", name, fmt::join(shape, ","), name_of(type));
    return *this;
  }
  field_writer& option(std::string_view name, std::string_view value) {
    text_ += fmt::format(" {}={}", name, value);
    return *this;
  }
  /// Sequences that have begun before this call go on from their state.
  field_writer& state(std::initializer_list<std::int64_t> shape) {
    return call_.goes_on() ? tensor("initial_state", shape, dtype::f32) : *this;
  }

  std::string text() const { return text_; }

 private:
  const layer_call& call_;
  std::string text_;
};

}  // namespace tessera::tool
