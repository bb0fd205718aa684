// A generated call whose tensors lie on a device: what tests of plans, graphs and streams run.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/operations.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"

namespace tessera::device_test {

/// Other values for every element.
inline void refill(const tensor_view& view, support::random_source& random) {
  reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    support::store(view, offset, static_cast<double>(random.bell()));
  });
}

class device_data {
 public:
  explicit device_data(const support::flash_case& example, device_id device = first_device)
      : host_(example),
        image_(attention_table::form.tensors, tensors_of(host_.args())),
        device_(device),
        args_(image_.args<flash_attention_args>(device)) {}

  support::flash_data& host() { return host_; }
  const flash_attention_args& args() const { return args_; }
  const flash_attention_options& options() const { return host_.options(); }
  flash_op op() const { return host_.shape().op; }

  /// A plan for the call, on its device.
  result<flash_plan> plan(context where = {}) const {
    where.device = device_;
    return tessera::plan(problem_of(args_, options(), op()), where);
  }

  /// Other values in q, k and v, on the host.
  void change_values(std::uint64_t seed) {
    support::random_source random(seed);
    for (const tensor_view* view : {&host_.args().q, &host_.args().k, &host_.args().v}) {
      refill(*view, random);
    }
  }

  /// Host values to the device, outputs as never written.
  void send(cudaStream_t stream) {
    host_.reset_outputs();
    image_.send(stream);
  }

  /// Waits for the stream and judges what it left: one sentence for each thing that is wrong.
  std::string complaints(cudaStream_t stream) {
    std::string text;
    if (!image_.fetch(stream)) text = "device memory outside the outputs was written\n";
    if (!host_.margins_intact()) text += "bytes between the elements of outputs were written\n";
    return text + support::flash_expectation(host_.args(), host_.options()).complaints();
  }

  /// Only copies outputs back; false if other memory was written.
  bool fetch(cudaStream_t stream) { return image_.fetch(stream) && host_.margins_intact(); }

 private:
  support::flash_data host_;
  device_image image_;
  device_id device_;
  flash_attention_args args_;
};

/// Calls that go different ways through a launch: many blocks, keys split over blocks and merged,
/// packed sequences, padded ones, the row that takes everything.
struct named_call {
  const char* name;
  support::flash_case call;
};
inline void PrintTo(const named_call& call, std::ostream* stream) {
  *stream << call.name;
}
inline std::vector<named_call> various_calls() {
  support::flash_case prompt;
  prompt.type = dtype::bf16;
  prompt.q_len = prompt.kv_len = 200;
  prompt.q_heads = 4;
  prompt.kv_heads = 2;
  prompt.head_dim = prompt.v_head_dim = 64;
  prompt.options.causal = true;
  prompt.poison = false;
  prompt.seed = 41;

  support::flash_case decode = prompt;
  decode.batch = 2;
  decode.q_len = 1;
  decode.kv_len = 3000;
  decode.head_dim = decode.v_head_dim = 128;
  decode.k_lengths = {3000, 1777};

  support::flash_case packed = prompt;
  packed.packed = true;
  packed.batch = 3;
  packed.q_lengths = packed.k_lengths = {70, 1, 129};

  support::flash_case everything = prompt;
  everything.type = dtype::f16;
  everything.head_dim = 40;
  everything.v_head_dim = 24;
  everything.bias_post = support::score_axes{};
  everything.mask = support::score_axes{.type = dtype::u8, .hidden = 0.3};
  everything.options.dropout_probability = 0.25;
  everything.options.dropout_seed = 99;
  everything.wants_dropout_mask = true;

  support::flash_case exact = prompt;
  exact.type = dtype::f32;
  exact.sink_count = 1;
  return {{"prompt", prompt},
          {"decode", decode},
          {"packed", packed},
          {"everything", everything},
          {"exact", exact}};
}

inline std::string name_of(const testing::TestParamInfo<named_call>& info) {
  return info.param.name;
}

}  // namespace tessera::device_test
