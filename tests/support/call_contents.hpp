// The numbers of a call that decide what is looked at: offsets, lengths, pages, sizes of groups.
// What they are follows from the declaration, and so does what nobody looks at then.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/spec/declaration.hpp>

#include "../reference/elements.hpp"
#include "random.hpp"

namespace tessera::support {

/// Fills the tensors that hold such numbers. Extents that do not follow from them are known.
/// Without `random`: offsets that cut evenly, whole lengths, pages in their order.
void fill_contents(const bound_call& call, random_source* random);

/// The elements of a tensor that a call may look at, as far as its contents say.
reference::seen_elements seen_by_contents(const bound_call& call, std::size_t tensor);

}  // namespace tessera::support
