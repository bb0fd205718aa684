// What gradients ask of the functors that are compiled into attention (hooks.hpp): a derivative,
// and where the gradients of what a functor learned go.
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/prim/common/hooks.hpp>

namespace tessera {

/// What gradients ask of a functor of logits: the logit, and its derivative by the score that the
/// functor was given.
struct score_with_slope {
  float score = 0.0f;
  float slope = 1.0f;
};

namespace prim {

/// A functor of logits whose derivative is known: `with_slope(s, at)` beside `(s, at)`.
template <class Logits>
concept has_slope = requires(const Logits& logits, float score, const position& at) {
  { logits.with_slope(score, at) } -> std::same_as<score_with_slope>;
};

/// A functor of logits with parameters that are learned: `parameters()` says how many,
/// `d_parameters()` where their gradients go (floats, where the functor runs), and
/// `add_gradients(d_logit, s, at, add)` calls `add(index, gradient)` for each parameter that the
/// logit of one visible pair depends on, whose gradient is d_logit.
template <class Logits>
concept has_parameters = requires(const Logits& logits, const position& at,
                                  void (*add)(std::int64_t, float)) {
  { logits.parameters() } -> std::convertible_to<std::int64_t>;
  { logits.d_parameters() } -> std::same_as<float*>;
  logits.add_gradients(0.0f, 0.0f, at, add);
};

}  // namespace prim
}  // namespace tessera
