// What a mutation is: it makes one thing of a legal call wrong and knows words that the refusal
// must contain.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>

#include "../flash_data.hpp"

namespace tessera::support {

/// A call that may be changed, and memory for what mutations change behind pointers. Not movable:
/// views may point into it.
struct flash_call {
  explicit flash_call(const flash_data& data)
      : op(data.shape().op), args(data.args()), options(data.options()) {}
  flash_call(const flash_call&) = delete;
  flash_call& operator=(const flash_call&) = delete;

  /// Copies a contiguous i32 tensor into memory of the call, so that its values can be changed.
  std::int32_t* own(tensor_view& view) {
    const std::vector<double> values = reference::to_doubles(view);
    integers.resize(values.size());
    for (std::size_t n = 0; n < values.size(); ++n) {
      integers[n] = static_cast<std::int32_t>(values[n]);
    }
    view = tensor_view{.data = integers.data(),
                       .type = dtype::i32,
                       .rank = 1,
                       .extent = {view.extent[0]},
                       .stride = {1}};
    return integers.data();
  }

  flash_op op;
  flash_attention_args args;
  flash_attention_options options;
  std::vector<std::int32_t> integers;
};

struct flash_mutation {
  std::string_view name;
  std::vector<std::string_view> words;  ///< that the message contains
  /// Makes the call illegal; false if the mutation does not fit the call (which is unchanged then).
  bool (*apply)(flash_call&);
};

namespace mutations {

inline bool has_elements(const tensor_view& view) {
  return view.present() && view.elements() > 0;
}

/// Position of the head axis of q, k, v and out.
inline std::size_t head_axis(const flash_call& call) {
  return call.args.cu_seqlens_q.present() ? 1 : 2;
}

/// Applies `change` to a present tensor.
template <class Change>
bool if_present(tensor_view& view, Change change) {
  if (!view.present()) return false;
  change(view);
  return true;
}
template <class Change>
bool if_elements(tensor_view& view, Change change) {
  return has_elements(view) && if_present(view, change);
}

inline void misalign(tensor_view& view) {
  view.data = static_cast<std::byte*>(view.data) + 1;
}

}  // namespace mutations

}  // namespace tessera::support
