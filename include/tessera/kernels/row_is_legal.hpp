// The assertion that stops an illegal row, shared by all families and back ends.
#pragma once

namespace tessera::kernels {

/// Instantiated for every row that is compiled; `Broken` is the rule of its family that the row
/// breaks. The compiler's message shows `Kernel` and `Broken`.
template <class Kernel, auto Broken>
struct row_is_legal {
  static_assert(Broken == nullptr,
                "this row breaks the rule named by the second template argument");
  static constexpr bool value = true;
};

}  // namespace tessera::kernels
