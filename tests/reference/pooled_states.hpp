// Recurrences whose states lie in a pool: those of the sequences that have tokens are the states of
// a packed call without a pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/problem.hpp>

#include "elements.hpp"
#include "operations.hpp"

namespace tessera::reference {

/// Where the states of a call's sequences are.
class state_pool {
 public:
  explicit state_pool(const bound_call& call)
      : offsets_(tensor_named(call, "cu_seqlens")), slots_(tensor_named(call, "state_indices")) {}

  bool present() const { return slots_.present(); }
  std::int64_t sequences() const { return slots_.extent[0]; }
  bool has_tokens(std::int64_t n) const { return at(offsets_, n + 1) > at(offsets_, n); }
  std::int64_t slot(std::int64_t n) const { return static_cast<std::int64_t>(at(slots_, n)); }

  /// The states of the sequences, zeros where they have none: row-major, in doubles.
  std::vector<double> gathered(const tensor_view& pool) const {
    const std::vector<double> all = to_doubles(pool);
    const auto size = size_of_state(pool);
    std::vector<double> states(static_cast<std::size_t>(sequences() * size), 0.0);
    for (std::int64_t n = 0; n < sequences(); ++n) {
      if (has_tokens(n)) std::copy_n(all.begin() + slot(n) * size, size, states.begin() + n * size);
    }
    return states;
  }
  /// Puts what belongs to each element of the states where the pool has them.
  void scatter(const std::vector<double>& states, const tensor_view& pool,
               std::vector<double>& to) const {
    const auto size = size_of_state(pool);
    for (std::int64_t n = 0; n < sequences(); ++n) {
      if (has_tokens(n)) std::copy_n(states.begin() + n * size, size, to.begin() + slot(n) * size);
    }
  }

 private:
  static std::int64_t size_of_state(const tensor_view& pool) {
    std::int64_t size = 1;
    for (int axis = 1; axis < pool.rank; ++axis)
      size *= pool.extent[static_cast<std::size_t>(axis)];
    return size;
  }

  tensor_view offsets_, slots_;
};

/// A definition of packed calls as one of calls whose states may lie in a pool. What a sequence
/// does not have is as it was before.
template <auto Packed>
expected_tensors pooled(const bound_call& call) {
  const state_pool where(call);
  if (!where.present()) return Packed(call);
  const auto tensors = call.form().tensors;
  std::array<tensor_view, max_tensors> views;
  std::copy_n(call.tensors, tensors.size(), views.begin());
  bound_call packed = call;
  packed.tensors = views.data();
  std::vector<double> initial, final_states;
  std::size_t final_place = tensors.size();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "state_indices") {
      views[i] = {};
      packed.present &= ~(1u << i);
    }
    const bool is_final = tensors[i].name == "final_state";
    if (!call.has(i) || (!is_final && tensors[i].name != "initial_state")) continue;
    if (is_final) final_place = i;
    std::vector<double>& states = is_final ? final_states : initial;
    states = where.gathered(call.tensors[i]);
    views[i].type = is_final ? call.tensors[i].type : dtype::f64;
    views[i].extent[0] = where.sequences();
    views[i].stride = contiguous_strides(views[i].extent, views[i].rank);
    views[i].data = states.data();
  }
  packed.layout = call.form().layout_of(packed);
  expected_tensors all = Packed(packed);
  for (expected_tensor& output : all) {
    if (output.tensor != final_place) continue;
    const tensor_view& pool = call.tensors[final_place];
    // One size, and one exponent, for each element.
    const auto spread = [&](std::vector<double>& of_rows) {
      if (of_rows.empty()) return;
      const std::size_t width = output.values.size() / of_rows.size();
      std::vector<double> of_elements(output.values.size());
      for (std::size_t i = 0; i < of_elements.size(); ++i) of_elements[i] = of_rows[i / width];
      std::vector<double> of_pool(static_cast<std::size_t>(pool.elements()), 0.0);
      where.scatter(of_elements, pool, of_pool);
      of_rows = std::move(of_pool);
    };
    spread(output.sizes);
    spread(output.logits);
    std::vector<double> values = to_doubles(pool);
    where.scatter(output.values, pool, values);
    output.values = std::move(values);
  }
  return all;
}

}  // namespace tessera::reference
