// Whatever a caller puts into views and options, `lower` answers; what it accepts lies inside the
// memory that the views describe. Meant to run under sanitizers too.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "attention_call.hpp"

namespace tessera::testing {
namespace {

class hostile {
 public:
  explicit hostile(std::uint64_t seed) : random_(seed) {}

  std::int64_t number() {
    constexpr std::array<std::int64_t, 18> odd{0,
                                               1,
                                               -1,
                                               2,
                                               3,
                                               5,
                                               7,
                                               8,
                                               -8,
                                               16,
                                               1 << 20,
                                               std::int64_t{1} << 31,
                                               std::int64_t{1} << 40,
                                               std::int64_t{1} << 54,
                                               std::int64_t{1} << 62,
                                               std::numeric_limits<std::int64_t>::max(),
                                               std::numeric_limits<std::int64_t>::min(),
                                               std::numeric_limits<std::int64_t>::min() + 1};
    return odd[random_() % odd.size()];
  }

  /// Changes one field of a view.
  void bend(tensor_view& view) {
    const auto axis = static_cast<std::size_t>(random_() % max_rank);
    switch (random_() % 9) {
      case 0:
        view.rank = static_cast<std::int8_t>(number());
        break;
      case 1:
        view.type = static_cast<dtype>(random_() % 12);
        break;
      case 2:
        view.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number()));
        break;
      case 3:
        view.device.kind = static_cast<device_kind>(random_() % 4);
        break;
      case 4:
        view.read_only = !view.read_only;
        break;
      case 5:
      case 6:
        view.extent[axis] = number();
        break;
      default:
        view.stride[axis] = number();
        break;
    }
  }

  void bend(attention_call& call) {
    for (auto changes = random_() % 4; changes-- > 0;) {
      bend(tensors_of(call.args)[random_() % attention_table::form.tensors.size()]);
    }
    flash_attention_options& options = call.options;
    if (random_() % 8 == 0) options.window_left = number();
    if (random_() % 8 == 0) options.window_right = number();
    if (random_() % 8 == 0) options.dropout_probability = static_cast<double>(number());
    if (random_() % 8 == 0) options.logits_soft_cap = static_cast<double>(number());
    call.op = static_cast<flash_op>(random_() % 4);
  }

 private:
  std::mt19937_64 random_;
};

TEST(LowerHostile, AnswersEverything) {
  int accepted = 0;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 30000; ++seed) {
    attention_call call;
    if (seed % 3 == 0) call.args = call.packed();
    if (seed % 2 == 0) call.args.lse = view(call.statistics.data(), {batch, q_heads, q_len});
    if (seed % 5 == 0) call.args.bias_pre = view(call.floats.data(), {1, 1, 1, kv_len});
    hostile(seed).bend(call);
    // Pointers that do not point to memory are beyond what a library can see.
    for (auto member : {&flash_attention_args::cu_seqlens_q, &flash_attention_args::cu_seqlens_k}) {
      tensor_view& offsets = call.args.*member;
      if (offsets.present() && offsets.data != nullptr) offsets.data = call.offsets_q.data();
      offsets.extent[0] = std::min<std::int64_t>(offsets.extent[0], 3);
    }
    for (auto member : {&flash_attention_args::seqlens_q, &flash_attention_args::seqlens_k}) {
      (call.args.*member) = {};
    }
    const status done = call.lower();
    done ? ++accepted : ++refused;
    EXPECT_EQ(done.message().empty(), static_cast<bool>(done));
    attention_kernel_args lowered;
    const status of_problem = lower(problem_of(call.args, call.options, call.op), lowered);
    EXPECT_TRUE(of_problem || !done) << of_problem.message();
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tessera::testing
