// What gradients are judged by, beside central differences of what forward calls are judged by:
// both in double, neither a kernel's.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention_backward/declaration.hpp>

#include "tests/reference/attention_backward.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/call_data.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

using reference::read;

/// The sum of what a forward call gives, times what comes into the gradients.
class loss {
 public:
  loss(const attention_backward_args& args, const flash_attention_options& options)
      : args_(args), options_(options) {}

  double value() const {
    const reference::flash_result found =
        reference::flash_attention<reference::exact>(forward_of(args_), options_);
    double sum = 0;
    const auto add = [&](const tensor_view& gradient, const std::vector<double>& of) {
      if (!gradient.present()) return;
      reference::for_each_element(gradient, [&](std::int64_t flat, std::int64_t offset) {
        const double x = of[static_cast<std::size_t>(flat)];
        // Rows without keys give zeros and an lse of -inf, whatever comes in.
        if (x != 0 && std::isfinite(x)) sum += x * read(gradient, offset);
      });
    };
    add(args_.d_out, found.out);
    add(args_.d_lse, found.lse);
    add(args_.d_weights, found.weights);
    return sum;
  }

 private:
  const attention_backward_args& args_;
  const flash_attention_options& options_;
};

/// Makes elements such that f32 holds their sums with steps.
void coarsen(const tensor_view& view) {
  if (!view.present() || view.type != dtype::f32) return;
  reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const double x = read(view, offset);
    if (std::isfinite(x)) reference::store(view, offset, std::round(x * 0x1p12) * 0x1p-12);
  });
}

struct compared {
  std::int64_t elements = 0;
  double gradients = 0, bounds = 0;  ///< sums of magnitudes
};

/// Some elements of an input that is differentiated: Richardson's of two central differences, whose
/// distance bounds its error.
void compare(const loss& of, const tensor_view& input, const tensor_view& d_input,
             const reference::gradient& gradient, random_source& random, compared& all) {
  if (!d_input.present() || input.type != dtype::f32 || input.elements() == 0 ||
      input.elements() != d_input.elements()) {
    return;
  }
  for (int draw = 0; draw < 4; ++draw) {
    const std::int64_t wanted = random.below(input.elements());
    std::int64_t place = 0;
    reference::for_each_element(input, [&](std::int64_t flat, std::int64_t offset) {
      if (flat == wanted) place = offset;
    });
    double expected = 0;  // of all elements that lie there
    reference::for_each_element(input, [&](std::int64_t flat, std::int64_t offset) {
      if (offset == place) expected += gradient.values[static_cast<std::size_t>(flat)];
    });
    const double x = read(input, place);
    if (!(std::fabs(x) < 64)) continue;  // f32 holds no step beside it
    const auto slope = [&](double step) {
      reference::store(input, place, x + step);
      const double above = of.value();
      reference::store(input, place, x - step);
      const double below = of.value();
      reference::store(input, place, x);
      return (above - below) / (2 * step);
    };
    const double wide = slope(0x1p-7), narrow = slope(0x1p-8);
    const double found = narrow + (narrow - wide) / 3;
    const double bound = std::fabs(wide - narrow) + 0x1p-30;  // and what rounding may be
    EXPECT_NEAR(found, expected, bound) << "element " << wanted;
    ++all.elements;
    all.gradients += std::fabs(expected);
    all.bounds += bound;
  }
}

/// A call of f32 that has these traits, and others now and then; none if none was found.
void compare_call(std::span<const call_trait> traits, random_source& random, compared& all) {
  const auto data = drawn_call(
      attention_backward_table::operations[0], random,
      {.type = dtype::f32, .traits = traits, .work = 3e3, .longest = 20, .attempts = 100});
  if (data == nullptr) return;
  SCOPED_TRACE(data->text());
  const auto& args = *reinterpret_cast<const attention_backward_args*>(data->call().tensors);
  const auto& options = data->call().options_as<flash_attention_options>();
  // Of outputs that are not normalised the largest score counts as a constant: no derivative.
  if (!options.normalize || args.k.data == args.v.data) return;
  for (const tensor_view* input :
       {&args.q, &args.k, &args.v, &args.bias_pre, &args.bias_post, &args.sinks}) {
    coarsen(*input);
  }
  reference::backward_evaluation<reference::exact> evaluation(args, options);
  const reference::backward_result& result = evaluation.result();
  const loss of(args, options);
  compare(of, args.q, args.d_q, result.d_q, random, all);
  compare(of, args.k, args.d_k, result.d_k, random, all);
  compare(of, args.v, args.d_v, result.d_v, random, all);
  compare(of, args.bias_pre, args.d_bias_pre, result.d_bias_pre, random, all);
  compare(of, args.bias_post, args.d_bias_post, result.d_bias_post, random, all);
  compare(of, args.sinks, args.d_sinks, result.d_sinks, random, all);
}

TEST(gradients_by_definition, are_the_differences_of_forward_calls) {
  compared all;
  random_source random = stream(57, 0);
  const auto traits = traits_of(attention_backward_table::operations[0]);
  for (const call_trait& one : traits) {
    for (const call_trait& other : traits) {
      const std::array<call_trait, 2> pair{one, other};
      compare_call(pair, random, all);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(all.elements, 2000);
  EXPECT_LT(all.bounds, 1e-3 * all.gradients) << "bounds would not notice a wrong gradient";
}

}  // namespace
}  // namespace tessera::support
