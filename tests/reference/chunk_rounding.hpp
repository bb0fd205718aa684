// What rows of recurrences that go by chunks round on the way to a result.
#pragma once

namespace tessera::reference {

/// operation_reference::rounded_numbers. Rows of chunks multiply on the matrix unit, whose operands
/// are of the tensors' type; those that go token by token are held to the floor of the type.
template <class Config, int Numbers>
int rounded_in_chunks(const void* config) {
  return goes_by_chunks(*static_cast<const Config*>(config)) ? Numbers : 1;
}

/// Of the delta rule: q and k with the decay in them, their score, the inverse of a chunk, and the
/// values that it corrects.
inline constexpr int delta_rule_chunk_numbers = 5;

}  // namespace tessera::reference
