// Recurrences over several chunks, in rows that the matrix unit takes, and single tokens of aligned
// states: random calls are shorter, or lie as neither wants them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "aligned_call.hpp"
#include "tests/reference/elements.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/place.hpp"

namespace tessera::support {
namespace {

class scans : public testing::TestWithParam<const char*> {};

TEST_P(scans, of_aligned_rows_are_right) {
  expect_right_when_aligned(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    recurrences, scans,
    testing::Values(
        "lightning_attn q=[2,300,4,128]bf16 k=[2,300,2,128] v=[2,300,2,128] "
        "initial_state=[2,4,128,128]f32",
        "recurrent q=[1,260,2,64]bf16 k=[1,260,2,64] v=[1,260,2,200] g=[1,260,2]f32 reverse=true",
        "recurrent q=[1,200,2,48]bf16 k=[1,200,1,48] v=[1,200,1,24] g=[1,200,2]f32 "
        "gk=[1,200,2,48]f32 initial_state=[1,2,48,24]f32",
        "recurrent q=[2,70,2,128]bf16 k=[2,70,2,128] v=[2,70,2,136] "
        "initial_state=[2,2,128,136]f32",
        "gla q=[1,700,2,104]bf16 k=[1,700,2,104] v=[1,700,2,72] gk=[1,700,2,104]f32 "
        "cu_seqlens=[5]i32 initial_state=[4,2,104,72]f32",
        "gla q=[3,200,2,128]bf16 k=[3,200,2,128] v=[3,200,2,128] gk=[3,200,2,128] "
        "initial_state=[3,2,128,128]f32 reverse=true",
        "lightning_attn q=[2,300,4,128]f16 k=[2,300,2,128] v=[2,300,2,128] "
        "initial_state=[2,4,128,128]f32",
        "recurrent q=[1,260,2,64]f16 k=[1,260,2,64] v=[1,260,2,200] g=[1,260,2]f32 reverse=true",
        "lightning_attn_backward q=[2,300,4,128]bf16 k=[2,300,2,128] v=[2,300,2,128] "
        "initial_state=[2,4,128,128]f32",
        "lightning_attn_backward q=[1,200,2,64]f16 k=[1,200,2,64] v=[1,200,2,40] "
        "initial_state=[1,2,64,40]f32",
        "recurrent_backward q=[1,260,2,64]bf16 k=[1,260,2,64] v=[1,260,2,56] g=[1,260,2]f32 "
        "d_g=[1,260,2]f32 reverse=true",
        "recurrent_backward q=[1,200,2,48]bf16 k=[1,200,1,48] v=[1,200,1,24] g=[1,200,2]f32 "
        "gk=[1,200,2,48]f32 initial_state=[1,2,48,24]f32 d_g=[1,200,2]f32 d_gk=[1,200,2,48]f32",
        "gla_backward q=[1,700,2,104]bf16 k=[1,700,2,104] v=[1,700,2,72] gk=[1,700,2,104]f32 "
        "cu_seqlens=[5]i32 initial_state=[4,2,104,72]f32 d_gk=[1,700,2,104]f32",
        "gla_backward q=[2,200,2,128]bf16 k=[2,200,2,128] v=[2,200,2,128] gk=[2,200,2,128] "
        "initial_state=[2,2,128,128]f32 d_final_state=[2,2,128,128]f32 d_gk=[2,200,2,128]bf16 "
        "reverse=true",
        "gla_backward q=[2,65,2,72]bf16 k=[2,65,2,72] v=[2,65,2,40] gk=[2,65,2,72]bf16 "
        "d_gk=[2,65,2,72]bf16 reverse=true",
        "gla_backward q=[2,65,2,72]f16 k=[2,65,2,72] v=[2,65,2,72] gk=[2,65,2,72]f16 "
        "initial_state=[2,2,72,72]f32 d_gk=[2,65,2,72]f16",
        "recurrent_backward q=[1,190,2,128]bf16 k=[1,190,2,128] v=[1,190,2,128] g=[1,190,2]f32 "
        "gk=[1,190,2,128]bf16 cu_seqlens=[7]i32 d_g=[1,190,2]f32 d_gk=[1,190,2,128]bf16",
        "recurrent_backward q=[2,200,2,64]f16 k=[2,200,2,64] v=[2,200,2,64] g=[2,200,2]f32 "
        "d_g=[2,200,2]f32",
        "rwkv6 r=[2,130,2,64]bf16 v=[2,130,2,64] "
        "initial_state=[2,2,64,64]f32",
        "rwkv6_backward r=[0,50,2,64]bf16 v=[0,50,2,64]",
        "rwkv6_backward r=[2,150,2,64]bf16 v=[2,150,2,56] initial_state=[2,2,64,56]f32 "
        "d_final_state=[2,2,64,56]f32 reverse=true",
        "rwkv6_backward r=[1,300,1,128]bf16 v=[1,300,1,128] cu_seqlens=[4]i32 raw_w=true",
        "rwkv6 r=[1,300,1,128]bf16 v=[1,300,1,128] cu_seqlens=[4]i32 "
        "initial_state=[3,1,128,128]f32 raw_w=true",
        "gated_delta_rule q=[2,300,2,128]bf16 v=[2,300,4,128] g=[2,300,4]f32 beta=[2,300,4]f32 "
        "initial_state=[2,4,128,128]f32 use_qk_l2norm=true",
        "gated_delta_rule q=[1,700,2,64]bf16 v=[1,700,2,72] g=[1,700,2]f32 beta=[1,700,2]f32 "
        "cu_seqlens=[5]i32 initial_state=[4,2,64,72]f32",
        "gated_delta_rule q=[1,190,1,104]bf16 v=[1,190,2,200] beta=[1,190,2]f32 "
        "initial_state=[1,2,104,200]f32 use_beta_sigmoid=true use_qk_l2norm=true",
        "gated_delta_rule_backward q=[2,300,2,128]bf16 v=[2,300,4,128] g=[2,300,4]f32 "
        "beta=[2,300,4]f32 initial_state=[2,4,128,128]f32 d_final_state=[2,4,128,128]f32 "
        "use_qk_l2norm=true",
        "gated_delta_rule_backward q=[1,700,2,64]bf16 v=[1,700,2,40] g=[1,700,2]f32 "
        "beta=[1,700,2]f32 cu_seqlens=[5]i32 initial_state=[4,2,64,40]f32",
        "gated_delta_rule_backward q=[1,190,1,104]bf16 v=[1,190,2,120] beta=[1,190,2]f32 "
        "use_beta_sigmoid=true use_qk_l2norm=true",
        "gated_delta_rule_backward q=[1,500,2,128]bf16 v=[1,500,4,128] g=[1,500,4]f32 "
        "beta=[1,500,4]f32 A_log=[4]f32 dt_bias=[4]f32 cu_seqlens=[5]i32 use_gate=true "
        "use_qk_l2norm=true",
        "gated_delta_rule_backward q=[0,50,2,64]bf16 v=[0,50,2,64] g=[0,50,2]f32 "
        "beta=[0,50,2]f32 A_log=[2]f32 dt_bias=[2]f32 use_gate=true",
        "kernel_delta_attention q=[2,300,2,128]bf16 v=[2,300,4,128] gk=[2,300,4,128]f32 "
        "beta=[2,300,4]f32 initial_state=[2,4,128,128]f32 use_qk_l2norm=true",
        "kernel_delta_attention q=[1,700,2,64]bf16 v=[1,700,2,72] gk=[1,700,2,64]bf16 "
        "beta=[1,700,2]f32 cu_seqlens=[5]i32 initial_state=[4,2,64,72]f32",
        "kernel_delta_attention q=[1,260,1,104]bf16 v=[1,260,2,200] gk=[1,260,2,104]f32 "
        "beta=[1,260,2]f32 A_log=[2]f32 dt_bias=[2,104]f32 initial_state=[1,2,104,200]f32 "
        "use_gate=true use_beta_sigmoid=true use_qk_l2norm=true",
        "kernel_delta_attention q=[1,130,1,128]bf16 v=[1,130,1,128] gk=[1,130,1,128]f32 "
        "beta=[1,130,1]f32 A_log=[1]f32 use_gate=true gate_lower_bound=-5",
        "kernel_delta_attention_backward q=[2,200,2,128]bf16 v=[2,200,4,128] gk=[2,200,4,128]f32 "
        "beta=[2,200,4]f32 initial_state=[2,4,128,128]f32 d_final_state=[2,4,128,128]f32 "
        "use_qk_l2norm=true",
        "kernel_delta_attention_backward q=[1,500,2,64]bf16 v=[1,500,2,40] gk=[1,500,2,64]bf16 "
        "beta=[1,500,2]f32 cu_seqlens=[5]i32 initial_state=[4,2,64,40]f32",
        "kernel_delta_attention_backward q=[1,190,1,104]bf16 v=[1,190,2,72] gk=[1,190,2,104]f32 "
        "beta=[1,190,2]f32 A_log=[2]f32 dt_bias=[2,104]f32 use_gate=true use_beta_sigmoid=true "
        "use_qk_l2norm=true",
        "rwkv7 r=[2,300,2,64]bf16 w=[2,300,2,64]f32 v=[2,300,2,64] "
        "initial_state=[2,2,64,64]f32",
        "rwkv7 r=[1,500,2,128]bf16 w=[1,500,2,128]f32 v=[1,500,2,136] cu_seqlens=[4]i32 "
        "initial_state=[3,2,128,136]f32",
        "rwkv7_mul r=[2,260,1,104]bf16 w=[2,260,1,104]f32 v=[2,260,1,72] "
        "initial_state=[2,1,104,72]f32 reverse=true",
        "gla q=[5,1,3,128]bf16 k=[5,1,3,128] v=[5,1,3,96] gk=[5,1,3,128]f32 "
        "initial_state=[5,3,128,96]f32",
        "rwkv6 r=[5,1,3,64]f32 v=[5,1,3,64] initial_state=[5,3,64,64]f32",
        "gated_delta_rule q=[5,1,2,128]bf16 v=[5,1,4,128] g=[5,1,4]f32 beta=[5,1,4]f32 "
        "initial_state=[5,4,128,128]f32 use_qk_l2norm=true",
        "lightning_attn q=[5,1,4,128]bf16 k=[5,1,2,128] v=[5,1,2,128] "
        "initial_state=[5,4,128,128]f32",
        "gla q=[5,1,3,104]bf16 k=[5,1,3,104] v=[5,1,3,256] gk=[5,1,3,104]f32 "
        "initial_state=[5,3,104,256]f32",
        "rwkv6 r=[5,1,3,128]bf16 v=[5,1,3,128] initial_state=[5,3,128,128]f32 raw_w=true",
        "kernel_delta_attention q=[5,1,2,112]bf16 v=[5,1,4,256] gk=[5,1,4,112]bf16 "
        "beta=[5,1,4]f32 initial_state=[5,4,112,256]f32 use_beta_sigmoid=true",
        "rwkv7 r=[5,1,3,128]bf16 w=[5,1,3,128]f32 v=[5,1,3,128] "
        "initial_state=[5,3,128,128]f32",
        "rwkv7_mul r=[5,1,3,72]bf16 w=[5,1,3,72]bf16 v=[5,1,3,128]",
        "gla q=[1,6,3,128]bf16 k=[1,6,3,128] v=[1,6,3,128] gk=[1,6,3,128]f32 cu_seqlens=[8]i32 "
        "state_indices=[7]i32 initial_state=[9,3,128,128]f32",
        "recurrent q=[1,5,4,72]f16 k=[1,5,2,72] v=[1,5,2,256] g=[1,5,4]f32 cu_seqlens=[7]i32 "
        "initial_state=[6,4,72,256]f32 reverse=true",
        "rwkv6 r=[1,6,3,128]bf16 v=[1,6,3,128] cu_seqlens=[8]i32 state_indices=[7]i32 "
        "initial_state=[9,3,128,128]f32",
        "gated_delta_rule q=[1,6,2,128]bf16 v=[1,6,4,128] g=[1,6,4]f32 beta=[1,6,4]f32 "
        "cu_seqlens=[8]i32 state_indices=[7]i32 initial_state=[9,4,128,128]f32 use_qk_l2norm=true",
        "ragged_gated_delta_rule q=[6,2,128]bf16 v=[6,4,128] g=[6,4]f32 beta=[6,4]f32 "
        "state_pool=[9,4,128,128]f32 cu_seqlens=[8]i32 state_indices=[7]i32 "
        "has_initial_state=[7]i32",
        "rwkv7 r=[1,6,3,104]f32 w=[1,6,3,104]f32 v=[1,6,3,128] cu_seqlens=[8]i32 "
        "initial_state=[7,3,104,128]f32",
        "state_space_v2 x=[2,300,3,64]bf16 A=[3]f32 B=[2,300,1,128] D=[3]f32 z=[2,300,3,64] "
        "initial_state=[2,3,64,128]f32 dt_softplus=true",
        "state_space_v2 x=[1,700,4,72]bf16 A=[4]f32 B=[1,700,2,24] dt_bias=[4]f32 "
        "cu_seqlens=[5]i32 initial_state=[4,4,72,24]f32",
        "state_space_v2 x=[1,260,4,136]bf16 A=[4]f32 B=[1,260,4,64] D=[4]f32 z=[1,260,4,136] "
        "norm_weight=[544]f32 initial_state=[1,4,136,64]f32 norm=true norm_group_size=136",
        "state_space_v2 x=[2,300,3,8]f16 A=[3]f32 B=[2,300,1,16] initial_state=[2,3,8,16]f32",
        "state_space_v2 x=[1,400,2,24]f32 A=[2]f32 B=[1,400,1,300] cu_seqlens=[4]i32 "
        "initial_state=[3,2,24,300]f32",
        "state_space_v2_backward x=[1,300,2,64]bf16 A=[2]f32 B=[1,300,1,128] D=[2]f32 "
        "z=[1,300,2,64] initial_state=[1,2,64,128]f32 dt_softplus=true norm=true",
        "state_space_v2_backward x=[1,400,4,24]f32 A=[4]f32 B=[1,400,2,144] z=[1,400,4,24] "
        "cu_seqlens=[4]i32 initial_state=[3,4,24,144]f32",
        "state_space_v2 x=[5,1,3,72]bf16 A=[3]f32 B=[5,1,1,128] D=[3]f32 dt_bias=[3]f32 "
        "initial_state=[5,3,72,128]f32 dt_softplus=true",
        "state_space_v2 x=[2,1,4,20]f32 A=[4]f32 B=[2,1,2,36] z=[2,1,4,20] "
        "initial_state=[2,4,20,36]f32 norm=true",
        "state_space_v2 x=[2,300,3,136]bf16 A=[3]f32 B=[2,300,1,64] D=[3,136]f32 z=[2,300,3,136] "
        "initial_state=[2,3,136,64]f32 dt_softplus=true norm=true",
        "state_space_v2 x=[1,400,2,24]f32 A=[2]f32 B=[1,400,1,300] D=[2,24]f32 cu_seqlens=[4]i32 "
        "initial_state=[3,2,24,300]f32",
        "state_space_v2 x=[5,1,3,72]f16 A=[3]f32 B=[5,1,1,128] D=[3,72]f16 z=[5,1,3,72] "
        "initial_state=[5,3,72,128]f32",
        "state_space_v2 x=[1,5,3,72]bf16 A=[3]f32 B=[1,5,1,128] D=[3,72]f32 cu_seqlens=[7]i32 "
        "state_indices=[6]i32 initial_state=[9,3,72,128]f32 dt_softplus=true",
        "state_space_v2_backward x=[2,300,2,136]bf16 A=[2]f32 B=[2,300,1,128] D=[2,136]f32 "
        "z=[2,300,2,136] initial_state=[2,2,136,128]f32 dt_softplus=true norm=true",
        "state_space_v2_backward x=[1,400,4,24]f32 A=[4]f32 B=[1,400,2,144] D=[4,24]f32 "
        "z=[1,400,4,24] cu_seqlens=[4]i32 initial_state=[3,4,24,144]f32",
        "state_space_v1 x=[3,1,300]bf16 A=[300,16]f32 B=[3,1,16] D=[300]f32 z=[3,1,300] "
        "dt_bias=[300]f32 initial_state=[3,300,16]f32 dt_softplus=true",
        "state_space_v1 x=[3,1,40]f32 A=[40,60]f32 B=[3,1,2,60] initial_state=[3,40,60]f32",
        "state_space_v1 x=[2,300,100]bf16 A=[100,16]f32 B=[2,300,16] z=[2,300,100] "
        "initial_state=[2,100,16]f32 dt_softplus=true",
        "state_space_v1 x=[1,700,40]f32 A=[40,150]f32 B=[1,700,2,150] cu_seqlens=[6]i32 "
        "initial_state=[5,40,150]f32",
        "state_space_v2 x=[1,5,3,72]bf16 A=[3]f32 B=[1,5,1,128] D=[3]f32 z=[1,5,3,72] "
        "cu_seqlens=[7]i32 state_indices=[6]i32 initial_state=[9,3,72,128]f32 dt_softplus=true",
        "state_space_v2 x=[1,170,1,8]f32 A=[1]f32 B=[1,170,1,4] cu_seqlens=[181]i32 "
        "state_indices=[180]i32 initial_state=[190,1,8,4]f32 norm=true",
        "state_space_v2 x=[1,700,4,72]bf16 A=[4]f32 B=[1,700,2,24] cu_seqlens=[5]i32 "
        "state_indices=[4]i32 initial_state=[6,4,72,24]f32",
        "state_space_v1 x=[1,5,300]bf16 A=[300,16]f32 B=[1,5,16] z=[1,5,300] cu_seqlens=[8]i32 "
        "state_indices=[7]i32 initial_state=[7,300,16]f32 dt_softplus=true",
        "state_space_v1 x=[1,600,40]f32 A=[40,20]f32 B=[1,600,2,20] cu_seqlens=[6]i32 "
        "state_indices=[5]i32 initial_state=[9,40,20]f32",
        "state_space_v1_backward x=[2,300,100]bf16 A=[100,16]f32 B=[2,300,16] z=[2,300,100] "
        "initial_state=[2,100,16]f32 dt_softplus=true",
        "state_space_v1_backward x=[1,500,40]f32 A=[40,150]f32 B=[1,500,2,150] D=[40]f32 "
        "cu_seqlens=[6]i32 initial_state=[5,40,150]f32",
        "rwkv4 k=[2,700,200]bf16 initial_state=[2,3,200]f32",
        "rwkv4 k=[1,900,70]f32 cu_seqlens=[5]i32 initial_state=[4,3,70]f32",
        "rwkv4 k=[1,900,70]bf16 cu_seqlens=[6]i32 state_indices=[5]i32 "
        "initial_state=[7,3,70]f32",
        "rwkv4 k=[1,5,200]f32 cu_seqlens=[6]i32 state_indices=[5]i32 initial_state=[9,3,200]f32",
        "rwkv4_backward k=[1,900,70]f32 cu_seqlens=[5]i32 initial_state=[4,3,70]f32"));

/// Root mean squares of errors relative to those of the truth.
double error_of(std::string_view output, const std::vector<double>& found,
                const std::vector<double>& truth) {
  double errors = 0, all = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    errors += (found[i] - truth[i]) * (found[i] - truth[i]);
    all += truth[i] * truth[i];
  }
  EXPECT_GT(all, 0) << output;
  return std::sqrt(errors / all);
}

// Two packed sequences of one token each go by whole rows of their states (row_tile.hpp); where the
// second has two tokens, the batch does not. The first sequence has the same bits in both, and so
// has the second one's first token.
class packed_tokens : public testing::TestWithParam<const char*> {};

/// The call of a text with so many tokens for each '$', of sequences of 1 and the rest; and what
/// lies along its tokens, from `longer` where that is given.
std::unique_ptr<call_data> call_of_tokens(const operation& op, std::string text, int tokens,
                                          const call_data* longer) {
  for (std::size_t at; (at = text.find('$')) != std::string::npos;) {
    text.replace(at, 1, std::to_string(tokens));
  }
  random_source random(5);
  auto data = std::make_unique<call_data>(problem_with_state_outputs(op, text), random,
                                          memory_wishes{.row_major = true, .poison = false});
  const auto& forms = op.form->tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const tensor_view& own = data->tensors()[i];
    if (!own.present() || forms[i].is_output()) continue;
    if (forms[i].name == "cu_seqlens") {
      for (int n = 0; n < 3; ++n) static_cast<std::int32_t*>(own.data)[n] = n == 2 ? tokens : n;
    } else if (longer != nullptr) {
      tensor_view same = longer->tensors()[i];
      same.extent = own.extent;
      const std::vector<double> values = reference::to_doubles(same);
      for (std::size_t at = 0; at < values.size(); ++at) {
        reference::store(own, static_cast<std::int64_t>(at), values[at]);
      }
    }
  }
  data->remember();
  return data;
}

TEST_P(packed_tokens, have_the_bits_of_any_batch) {
  const std::string_view text = GetParam();
  const std::string row(text.substr(0, text.find(' ')));
  const std::string_view call = text.substr(row.size() + 1), name = call.substr(0, call.find(' '));
  const found_operation known = operation_named(name);
  if (const std::string why = why_not_here(*known.kind); !why.empty()) GTEST_SKIP() << why;
  const std::string problem(call.substr(name.size() + 1));
  const auto longer = call_of_tokens(*known.op, problem, 3, nullptr);
  const auto shorter = call_of_tokens(*known.op, problem, 2, longer.get());
  for (const call_data* const data : {longer.get(), shorter.get()}) {
    ASSERT_TRUE(data->refusal()) << data->refusal().message();
    const status done = call_here(*known.kind, data->problem(), {.row = row});
    ASSERT_TRUE(done) << done.message();
  }
  const auto& forms = known.op->form->tensors;
  int compared = 0;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const tensor_view& own = shorter->tensors()[i];
    if (!own.present() || !forms[i].is_output()) continue;
    tensor_view same = longer->tensors()[i], mine = own;
    same.extent = own.extent;
    // The second sequence's state has seen a token more.
    if (forms[i].name != "out") same.extent[0] = mine.extent[0] = 1;
    EXPECT_EQ(reference::to_doubles(mine), reference::to_doubles(same)) << forms[i].name;
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(
    recurrences, packed_tokens,
    testing::Values(
        "chunked_scan.cuda_sm80.bf16.forward.step.k128 gla q=[1,$,3,128]bf16 k=[1,$,3,128] "
        "v=[1,$,3,128] gk=[1,$,3,128]f32 cu_seqlens=[3]i32 initial_state=[2,3,128,128]f32",
        "chunked_scan.cuda_sm80.bf16.forward.step.k128 rwkv6 r=[1,$,2,104]bf16 v=[1,$,2,128] "
        "cu_seqlens=[3]i32 initial_state=[2,2,104,128]f32",
        "delta_rule.cuda_sm80.bf16.forward.k128 gated_delta_rule q=[1,$,2,128]bf16 "
        "v=[1,$,4,128] g=[1,$,4]f32 beta=[1,$,4]f32 cu_seqlens=[3]i32 "
        "initial_state=[2,4,128,128]f32 use_qk_l2norm=true",
        "delta_rule.cuda_sm80.bf16.forward.k128 rwkv7 r=[1,$,2,128]bf16 w=[1,$,2,128]f32 "
        "v=[1,$,2,128] cu_seqlens=[3]i32 initial_state=[2,2,128,128]f32"));

class parallel_keys : public testing::TestWithParam<const char*> {
 protected:
  /// Keys of squared length 1.9 that differ by `spread`, beta 1 and decays of next to nothing: what
  /// a key has in the state changes its sign with every token, and loses a tenth.
  static void fill(const call_data& data, double spread, random_source& random) {
    const auto forms = data.op().form->tensors;
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const tensor_view& view = data.tensors()[i];
      if (!view.present()) continue;
      const std::string_view name = forms[i].name;
      if (name == "k") {
        fill_keys(view, spread, random);
      } else if (name == "beta") {
        reference::for_each_element(
            view, [&](std::int64_t, std::int64_t offset) { reference::store(view, offset, 1.0); });
      } else if (name == "g" || name == "gk") {
        reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
          reference::store(view, offset, -0.01 * random.uniform());
        });
      }
    }
  }

 private:
  static void fill_keys(const tensor_view& view, double spread, random_source& random) {
    const auto width = static_cast<std::size_t>(view.extent[3]);
    std::vector<double> direction(width), key(width);
    for (double& x : direction) x = static_cast<double>(random.bell());
    reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      const std::size_t channel = static_cast<std::size_t>(flat) % width;
      if (channel == 0) {
        double squares = 0;
        for (std::size_t c = 0; c < width; ++c) {
          key[c] = direction[c] + spread * static_cast<double>(random.bell());
          squares += key[c] * key[c];
        }
        for (double& x : key) x *= std::sqrt(1.9 / squares);
      }
      reference::store(view, offset, key[channel]);
    });
  }
};

// The inverse of a chunk is large, and so is what its rounding to bf16 adds to sums that cancel: a
// hundredth of answers and states, whatever it is made of. Bound: that of bf16.
TEST_P(parallel_keys, keep_the_bound_of_bf16) {
  const std::string_view text = GetParam(), name = text.substr(0, text.find(' '));
  const found_operation known = operation_named(name);
  if (const std::string why = why_not_here(*known.kind); !why.empty()) GTEST_SKIP() << why;
  for (const double spread : {0.3, 1.0}) {
    random_source random(3);
    call_data data(problem_with_state_outputs(*known.op, text.substr(name.size() + 1)), random,
                   {.aligned = true});
    ASSERT_TRUE(data.refusal()) << data.refusal().message();
    fill(data, spread, random);
    const call_expectation expectation(data.call());
    const status done = call_here(*known.kind, data.problem());
    ASSERT_TRUE(done) << done.message();
    for (const reference::expected_tensor& truth : expectation.truth()) {
      const std::string_view output = data.op().form->tensors[truth.tensor].name;
      const std::vector<double> found = reference::to_doubles(data.tensors()[truth.tensor]);
      EXPECT_LE(error_of(output, found, truth.values), 0.02) << output << ", spread " << spread;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    recurrences, parallel_keys,
    testing::Values("gated_delta_rule q=[1,100,2,128]bf16 v=[1,100,2,128] beta=[1,100,2]f32 "
                    "initial_state=[1,2,128,128]f32",
                    "gated_delta_rule q=[1,100,2,64]bf16 v=[1,100,2,64] g=[1,100,2]f32 "
                    "beta=[1,100,2]f32 initial_state=[1,2,64,64]f32",
                    "kernel_delta_attention q=[1,100,2,128]bf16 v=[1,100,2,128] "
                    "gk=[1,100,2,128]f32 beta=[1,100,2]f32 initial_state=[1,2,128,128]f32"));

}  // namespace
}  // namespace tessera::support
