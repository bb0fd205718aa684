// What becomes of an element of a product before it is rounded and stored, on the header path: any
// functor `float operator()(float value, const tessera::product_position& at) const`. `value` has
// rhs_bias and out_init in it. Those that models need:
//
//   tessera::epilogue::silu{}                       SiLU; also relu, gelu, gelu_tanh
//   tessera::epilogue::scale{0.5f}
//   tessera::epilogue::plus{data, row_stride}       a residual
//   tessera::epilogue::times{data, row_stride}      gate * up: of up, with the gate's result
//   tessera::epilogue::then{first, second}          one after the other
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera {

/// Where an element of out lies.
struct product_position {
  std::int64_t group = 0;  ///< the matrix of rhs: of a group, or of an entry of the batch
  std::int64_t row = 0;    ///< of out; of a batch in its entry
  std::int64_t column = 0;
};

/// Elements are stored as they are.
struct no_epilogue {};

namespace epilogue {

/// NaN stays.
struct relu {
  TESSERA_HD float operator()(float x, const product_position&) const { return x < 0 ? 0 : x; }
};

struct silu {
  TESSERA_HD float operator()(float x, const product_position&) const {
    return x / (1 + std::exp(-x));
  }
};

/// x times the normal distribution.
struct gelu {
  TESSERA_HD float operator()(float x, const product_position&) const {
    constexpr float root_of_half = 0.70710678f;
    return 0.5f * x * (1 + std::erf(x * root_of_half));
  }
};

/// The same by a hyperbolic tangent, which many models are trained with.
struct gelu_tanh {
  static constexpr float slope = 0.79788456f;  ///< the root of 2 / pi
  static constexpr float cubic = 0.044715f;

  TESSERA_HD float operator()(float x, const product_position&) const {
    return 0.5f * x * (1 + std::tanh(slope * (x + cubic * x * x * x)));
  }
};

struct scale {
  float factor = 1;

  TESSERA_HD float operator()(float x, const product_position&) const { return x * factor; }
};

/// A matrix of the size of out, or one for each entry of a batch; strides count elements.
template <class Element>
struct elements_of {
  const Element* data = nullptr;
  std::int64_t row = 0;    ///< from row to row
  std::int64_t group = 0;  ///< from entry to entry of a batch; of groups 0

  TESSERA_HD float at(const product_position& place) const {
    return static_cast<float>(data[place.group * group + place.row * row + place.column]);
  }
};

template <class Element>
struct plus : elements_of<Element> {
  TESSERA_HD float operator()(float x, const product_position& at) const {
    return x + elements_of<Element>::at(at);
  }
};
template <class Element>
plus(const Element*, std::int64_t) -> plus<Element>;
template <class Element>
plus(const Element*, std::int64_t, std::int64_t) -> plus<Element>;

template <class Element>
struct times : elements_of<Element> {
  TESSERA_HD float operator()(float x, const product_position& at) const {
    return x * elements_of<Element>::at(at);
  }
};
template <class Element>
times(const Element*, std::int64_t) -> times<Element>;
template <class Element>
times(const Element*, std::int64_t, std::int64_t) -> times<Element>;

template <class First, class Second>
struct then {
  First first;
  Second second;

  TESSERA_HD float operator()(float x, const product_position& at) const {
    return second(first(x, at), at);
  }
};
template <class First, class Second>
then(First, Second) -> then<First, Second>;

}  // namespace epilogue
}  // namespace tessera
