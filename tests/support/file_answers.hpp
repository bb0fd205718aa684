// Tensors of a call that a golden file has as answers, not as inputs (tests/golden/README.md):
// outputs, and what a gradient takes from the forward call. Files have the truth in double, so the
// types of such tensors follow from the rest.
#pragma once

#include <span>
#include <string>

#include <tessera/interop/safetensors.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::support {

/// True if a tensor of a call, whose other tensors are `tensors`, may have that type: one of its
/// own or that of the tensor which it is like.
inline bool may_have(const tensor_form& wanted, std::span<const tensor_view> tensors, dtype type) {
  const bool known = wanted.like >= 0 && type != dtype::none;
  return wanted.types.has(type) ||
         (known && tensors[static_cast<std::size_t>(wanted.like)].type == type);
}

/// The type that the file's answer gives to a tensor of a call, whose other tensors are `tensors`:
/// that of what it is the gradient of; else, if the operation allows it, that of the truth, where
/// this is not in double, or of the source's own answer; else the operation's. `operands` is the
/// type of the call's operands, for tensors of which the operation says nothing.
inline dtype type_of_answer(const safetensors_file& file, const signature& form,
                            std::span<const tensor_view> tensors, std::size_t tensor,
                            dtype operands) {
  const tensor_form& wanted = form.tensors[tensor];
  const std::string name(wanted.name_in_files());
  const auto type_of = [&](std::int8_t other) {
    return other < 0 ? dtype::none : tensors[static_cast<std::size_t>(other)].type;
  };
  const auto type_in_file = [&](const std::string& key) {
    const tensor_view* const view = file.tensor(key);
    return view != nullptr ? view->type : dtype::none;
  };
  const dtype gradient = type_of(wanted.gradient_of), like = type_of(wanted.like);
  if (gradient != dtype::none) return gradient;
  // Where f32 is allowed besides the type of another tensor, it is what results are computed in.
  const dtype computed = wanted.like >= 0 ? dtype::f32 : dtype::none;
  for (const dtype type : {type_in_file("ref." + name), type_in_file("out." + name),
                           wanted.types.only(), computed, like, operands, dtype::f32}) {
    if (may_have(wanted, tensors, type)) return type;
  }
  return dtype::none;
}

}  // namespace tessera::support
