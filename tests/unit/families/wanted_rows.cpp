// The row that a hint names: one that a table may have and that would run the call, or none.
#include <gtest/gtest.h>

#include <tessera/families/chunked_scan/family.hpp>
#include <tessera/families/grouped_matmul/family.hpp>
#include <tessera/runtime/family.hpp>

namespace tessera {
namespace {

std::string wanted_on(backend highest, dtype lhs, dtype rhs, product_scaling scaled) {
  device_facts device;
  device.kind = kind_of(highest);
  device.highest = highest;
  const grouped_matmul_demand demand{.type = lhs,
                                     .rhs_type = rhs,
                                     .transposed = true,
                                     .scaled = scaled,
                                     .grouped = false,
                                     .groups = 1,
                                     .m = 64,
                                     .n = 64,
                                     .k = 256};
  return wanted_row_of<grouped_matmul_family>(demand, device, {});
}

std::string wanted_on(backend highest, dtype type, product_scaling scaled) {
  return wanted_on(highest, type, type, scaled);
}

TEST(wanted_rows, of_pairs_of_f8_multiply_both_as_they_are) {
  using enum dtype;
  const auto wanted = [](dtype lhs, dtype rhs) {
    return wanted_on(backend::cuda_sm90, lhs, rhs, product_scaling::blocks);
  };
  const std::string e5m2 = "grouped_matmul.cuda_sm90.f8_e5m2.128x192x128";
  EXPECT_EQ(wanted(f8_e5m2, f8_e5m2), e5m2);
  EXPECT_EQ(wanted(f8_e5m2, f8_e4m3), e5m2);
  EXPECT_EQ(wanted(f8_e4m3, f8_e5m2), e5m2);
  EXPECT_EQ(wanted(f8_e4m3, f8_e4m3), "grouped_matmul.cuda_sm90.f8_e4m3.128x192x128");
}

TEST(wanted_rows, of_bytes_are_those_of_the_instructions_for_them) {
  using enum backend;
  for (const product_scaling scaled : {product_scaling::blocks, product_scaling::rows}) {
    const auto wanted = [&](backend highest) { return wanted_on(highest, dtype::i8, scaled); };
    EXPECT_EQ(wanted(cpu_avx2), "grouped_matmul.cpu_avx2.258x64x256");
    EXPECT_EQ(wanted(cpu_avx512), "grouped_matmul.cpu_avx512.518x64x256");
    for (const backend highest : {cpu_avx512_vnni, cpu_avx512_bf16}) {
      EXPECT_EQ(wanted(highest), "grouped_matmul.cpu_avx512_vnni.518x64x1024");
    }
    EXPECT_EQ(wanted(cpu_amx_bf16), "grouped_matmul.cpu_amx_bf16.i8.512x128x1024");
    EXPECT_EQ(wanted(cuda_sm90), "grouped_matmul.cuda_sm90.i8.128x192x128");
    EXPECT_EQ(wanted(cuda_sm80), "") << "there is no such row";
  }
}

TEST(wanted_rows, of_other_types_need_no_instructions_for_bytes) {
  using enum backend;
  constexpr auto none = product_scaling::none;
  EXPECT_EQ(wanted_on(cpu_avx512_vnni, dtype::f32, none), "grouped_matmul.cpu_avx512.518x64x256");
  EXPECT_EQ(wanted_on(cpu_avx512_vnni, dtype::bf16, none), "grouped_matmul.cpu_avx512.518x64x256");
  EXPECT_EQ(wanted_on(cpu_avx512_bf16, dtype::bf16, none),
            "grouped_matmul.cpu_avx512_bf16.518x64x512");
  EXPECT_EQ(wanted_on(cpu_amx_bf16, dtype::bf16, none),
            "grouped_matmul.cpu_amx_bf16.bf16.512x128x512");
  EXPECT_EQ(wanted_on(cpu_amx_bf16, dtype::f32, none), "grouped_matmul.cpu_avx512.518x64x256");
  EXPECT_EQ(wanted_on(cpu_avx512_bf16, dtype::f8_e4m3, product_scaling::blocks),
            "grouped_matmul.cpu_avx512.518x64x256");
}

/// Gradients of a prompt whose heads decay, without those of the decays.
chunked_scan_demand gradients_of(dtype type) {
  return {.type = type,
          .pass = chunked_scan_pass::backward,
          .decay = chunked_scan_decay::keys,
          .sequences = 1,
          .tokens = 4096,
          .heads = 8,
          .keys = 128,
          .values = 128};
}

TEST(wanted_rows, of_prompts_have_chunks_where_those_run_them) {
  device_facts device;
  device.kind = device_kind::cuda;
  device.highest = backend::cuda_sm80;
  chunked_scan_demand demand = gradients_of(dtype::f16);
  const auto form_of = [&] {
    return chunked_scan_family::wanted_config(demand, backend::cuda_sm80, backend::cuda_sm80)->form;
  };
  EXPECT_EQ(form_of(), chunked_scan_form::chunk);
  EXPECT_NE(wanted_row_of<chunked_scan_family>(demand, device, {}), "");
  demand.decay_gradients = true;
  EXPECT_EQ(form_of(), chunked_scan_form::step) << "chunks of f16 keep no states";
  EXPECT_NE(wanted_row_of<chunked_scan_family>(demand, device, {}), "");
}

TEST(wanted_rows, of_gradients_on_hopper_have_decays_of_channels_or_none_of_heads) {
  chunked_scan_demand demand = gradients_of(dtype::bf16);
  const auto has_row = [&] {
    const auto wanted = chunked_scan_family::wanted_config(demand, backend::cuda_sm90, {});
    return wanted && wanted->form == chunked_scan_form::chunk && runs(*wanted, demand);
  };
  EXPECT_TRUE(has_row());
  demand.decay_gradients = true;
  EXPECT_FALSE(has_row()) << "of decays of heads";
  demand.channels = true;
  EXPECT_TRUE(has_row());
  demand.bonus = true;
  EXPECT_FALSE(has_row());
  demand.bonus = false;
  demand.values = 192;
  EXPECT_FALSE(has_row()) << "states are transposed";
}

}  // namespace
}  // namespace tessera
