// Keys: what is in them, how they read, and that no field is forgotten.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/spec/option_text.hpp>
#include <tessera/spec/problem_text.hpp>

#include "pretended.hpp"

namespace tessera::testing {
namespace {

/// "a=1 b=c" -> "a b".
std::string names_in(std::string_view pairs) {
  std::string names;
  for (std::size_t at = 0; at < pairs.size();) {
    const std::string_view pair = pairs.substr(at, pairs.find(' ', at) - at);
    names.append(names.empty() ? "" : " ").append(pair.substr(0, pair.find('=')));
    at += pair.size() + 1;
  }
  return names;
}

/// A line of problem text for each operation, with every option at its default.
constexpr std::string_view plain_problems[] = {
    "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64]",
    "attention q=[2,64,8,64]f32 k=[2,64,8,64]",
    "scaled_dot_product_attention q=[2,64,8,64]f32 k=[2,64,8,64]",
    "page_attention q=[2,8,64]f32 k_pages=[144,4,64] block_table=[2,4]i32 pool_layout=(PT)HD "
    "page_size=16",
    "decode_attention q=[2,8,64]f32 k_pages=[144,4,64] block_table=[2,4]i32 pool_layout=(PT)HD "
    "page_size=16",
    "prefill_page_attention q=[9,8,64]f32 k_pages=[144,4,64] block_table=[1,4]i32 "
    "pool_layout=(PT)HD page_size=16",
    "ragged_decode_attention q=[2,8,64]f32 k=[2,64,4,64]",
    "fp8_attention q=[2,64,8,64]f8_e4m3 k=[2,64,8,64] out=[2,64,8,64]bf16",
    "unified_attention q=[9,8,64]f32 k_pages=[144,4,64] block_table=[2,4]i32 cu_seqlens_q=[3]i32 "
    "pool_layout=(PT)HD page_size=16",
    "chunked_prefill_paged_decode q=[9,8,64]f32 k_pages=[144,4,64] block_table=[2,4]i32 "
    "cu_seqlens_q=[3]i32 pool_layout=(PT)HD page_size=16",
    "ragged_page_attention_v2 q=[9,8,64]f32 kv_pages=[9,16,8,64] block_table=[2,4]i32 "
    "cu_seqlens_q=[3]i32",
    "ragged_page_attention_v3 q=[9,8,64]f32 k_new=[9,4,64] kv_pages=[9,16,8,64] "
    "block_table=[2,4]i32 cu_seqlens_q=[3]i32",
    "mean_pooling x=[2,64,96]f32",
    "mean_pooling_chunks x=[2,64,4,32]f32",
    "mean_pooling_backward x=[2,64,96]f32",
    "mean_pooling_chunks_backward x=[2,64,4,32]f32",
    "flash_attention_backward q=[2,64,8,64]f32 k=[2,64,8,64]",
    "attention_backward q=[2,64,8,64]f32 k=[2,64,8,64]",
    "scaled_dot_product_attention_backward q=[2,64,8,64]f32 k=[2,64,8,64]",
    "kv_cache_append k_new=[9,4,64]f32 v_new=[9,4,64] k_pages=[144,4,64]f32 block_table=[9,1]i32 "
    "pool_layout=(PT)HD page_size=16",
    "kv_cache_copy k_pages=[144,4,64]f32 v_pages=[144,4,64]f32 source_pages=[2]i32 "
    "target_pages=[2]i32 pool_layout=(PT)HD page_size=16",
    "recurrent q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,64]",
    "gla q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,64]",
    "lightning_attn q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,64]",
    "recurrent_backward q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,64]",
    "gla_backward q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,64]",
    "lightning_attn_backward q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,64]",
    "rwkv6 r=[2,64,8,64]f32 v=[2,64,8,64]",
    "gated_delta_rule q=[2,64,8,64]f32 v=[2,64,8,64] g=[2,64,8]f32 beta=[2,64,8]f32",
    "state_space_v1 x=[2,64,96]f32 A=[96,16]f32 B=[2,64,16]",
    "state_space_v2 x=[2,64,4,24]f32 A=[4]f32 B=[2,64,1,16]",
    "rwkv4 k=[2,64,96]f32",
    "rwkv6_backward r=[2,64,8,64]f32 v=[2,64,8,64]",
    "gated_delta_rule_backward q=[2,64,8,64]f32 v=[2,64,8,64] g=[2,64,8]f32 beta=[2,64,8]f32",
    "kernel_delta_attention_backward q=[2,64,8,64]f32 v=[2,64,8,64] beta=[2,64,8]f32",
    "rwkv7_backward r=[2,64,8,64]f32 w=[2,64,8,64]f32 v=[2,64,8,64]",
    "rwkv7_mul_backward r=[2,64,8,64]f32 w=[2,64,8,64]f32 v=[2,64,8,64]",
    "rwkv7 r=[2,64,8,64]f32 w=[2,64,8,64]f32 v=[2,64,8,64]",
    "rwkv7_mul r=[2,64,8,64]f32 w=[2,64,8,64]f32 v=[2,64,8,64]",
    "kernel_delta_attention q=[2,64,8,64]f32 v=[2,64,8,64] beta=[2,64,8]f32",
    "blocksparse_attention q=[2,8,64,64]f32 k=[2,2,96,64] v=[2,2,96,64]",
    "native_sparse_attention q=[2,64,8,64]f32 k=[2,64,2,64] v=[2,64,2,64]",
    "native_sparse_attention_backward q=[2,64,8,64]f32 k=[2,64,2,64] v=[2,64,2,64] "
    "selected_blocks=[2,64,2,4]i32",
    "block_selection q=[2,64,8,64]f32 k=[2,64,2,64]",
    "blocksparse_attention_backward q=[2,8,64,64]f32 k=[2,2,96,64] v=[2,2,96,64]",
    "state_space_v1_backward x=[2,64,96]f32 A=[96,16]f32 B=[2,64,16]",
    "rwkv4_backward k=[2,64,96]f32",
    "state_space_v2_backward x=[2,64,4,24]f32 A=[4]f32 B=[2,64,1,16]",
    "ragged_gated_delta_rule q=[64,8,64]f32 v=[64,8,64] g=[64,8]f32 beta=[64,8]f32 "
    "state_pool=[4,8,64,64]f32 "
    "cu_seqlens=[4]i32 state_indices=[3]i32",
    "ragged_gated_delta_rule_backward q=[64,8,64]f32 v=[64,8,64] g=[64,8]f32 beta=[64,8]f32 "
    "state_pool=[4,8,64,64]f32 "
    "cu_seqlens=[4]i32 state_indices=[3]i32",
    "ragged_gated_delta_rule_v2 mixed_qkv=[64,1536]f32 a=[64,8]f32 b=[64,8]f32 "
    "state_pool=[4,8,64,64]f32 "
    "cu_seqlens=[4]i32 state_indices=[3]i32",
    "ragged_gated_delta_rule_v2_backward mixed_qkv=[64,1536]f32 a=[64,8]f32 b=[64,8]f32 "
    "state_pool=[4,8,64,64]f32 "
    "cu_seqlens=[4]i32 state_indices=[3]i32",
    "flash_mla ckv=[2,64,48]f32 w_kc=[48,8,32] w_vc=[48,8,24] q=[2,64,8,32]",
    "flash_mla_backward ckv=[2,64,48]f32 w_kc=[48,8,32] w_vc=[48,8,24] q=[2,64,8,32]",
    "flash_mla_decode q=[2,1,8,64]f32 kv_cache=[9,16,1,64] block_table=[2,4]i32 "
    "softmax_scale=0.125",
    "multi_latent_ragged_page_attention q_nope=[9,8,64]f32 q_pe=[9,8,16] kv_cache=[9,16,1,256] "
    "block_tables=[2,4]i32 cu_seqlens_q=[3]i32 softmax_scale=0.125",
    "deepseek_attn ckv=[2,64,48]f32 w_kc=[48,8,32] w_vc=[48,8,24] q=[2,64,8,32] "
    "q_index=[2,64,4,16]f32",
    "deepseek_attn_backward ckv=[2,64,48]f32 w_kc=[48,8,32] w_vc=[48,8,24] q=[2,64,8,32] "
    "indices=[2,64,9]i32",
    "quantize w=[48,128]f32 scales=[48,2]f32 zeros=[48,2]f32",
    "dequantize w=[48,128]f32 w_q=[48,16]u32 scales=[48,2]f32 zeros=[48,2]f32",
    "prepack_quantized_weights w=[48,128]f32 scales=[48,2]f32 zeros=[48,2]f32",
    "quantized_matmul x=[2,128]f32 out=[2,48]f32 w_q=[48,16]u32 scales=[48,2]f32 zeros=[48,2]f32",
    "quantized_matmul_backward x=[2,128]f32 d_out=[2,48]f32 w_q=[48,16]u32 scales=[48,2]f32 "
    "zeros=[48,2]f32",
    "quantized_grouped_matmul x=[2,128]f32 out=[2,48]f32 w_q=[3,48,16]u32 scales=[3,48,2]f32 "
    "zeros=[3,48,2]f32 group_sizes=[3]i32",
    "quantized_grouped_matmul_backward x=[2,128]f32 d_out=[2,48]f32 w_q=[3,48,16]u32 "
    "scales=[3,48,2]f32 zeros=[3,48,2]f32 group_sizes=[3]i32",
    "grouped_matmul lhs=[64,48]f32 rhs=[4,48,32]f32 group_sizes=[4]i32",
    "matmul lhs=[64,48]f32 rhs=[48,32]f32",
    "matmul_backward lhs=[64,48]f32 rhs=[48,32]f32 d_out=[64,32]f32",
    "grouped_matmul_backward lhs=[64,48]f32 rhs=[4,48,32]f32 group_sizes=[4]i32 d_out=[64,32]f32",
    "scaled_grouped_matmul lhs=[64,48]f8_e4m3 rhs=[4,32,48] group_sizes=[4]i32 "
    "out=[64,32]bf16",
    "scaled_matmul lhs=[64,48]f8_e4m3 rhs=[32,48] out=[64,32]bf16",
    "fused_cross_entropy logits=[2,64,96]f32 targets=[2,64]i32",
    "fused_cross_entropy_backward logits=[2,64,96]f32 targets=[2,64]i32",
    "fused_kl_divergence student_logits=[2,64,96]f32 teacher_logits=[2,64,96]f32",
    "fused_kl_divergence_backward student_logits=[2,64,96]f32 teacher_logits=[2,64,96]f32",
    "fused_linear_cross_entropy hidden=[2,64,32]f32 lm_head_weight=[32,96]f32 targets=[2,64]i32",
    "fused_linear_cross_entropy_backward hidden=[2,64,32]f32 lm_head_weight=[32,96]f32 "
    "targets=[2,64]i32",
};

/// A plain problem and its family.
struct plain_problem {
  explicit plain_problem(std::string_view text) : problem(*parse_problem(text, kind)) {
    const auto forms = problem.op->form->tensors;
    for (std::size_t i = 0; i < forms.size(); ++i) {  // x is not alone in saying how large d_x is
      const std::int8_t of = forms[i].gradient_of;
      if ((problem.op->required >> i & 1u) == 0 || of < 0) continue;
      problem.tensors[i] = problem.tensors[static_cast<std::size_t>(of)];
    }
  }
  demand asked() const { return demand_for(*kind, problem.view(), {}); }

  const family* kind = nullptr;
  owned_problem problem;
};

/// Words that an option of this type can be set to.
std::vector<std::string> words_for(const option_form& option) {
  switch (option.type) {
    case option_type::flag:
      return {"false", "true"};
    case option_type::choice:
      return {option.enumerators.begin(), option.enumerators.end()};
    case option_type::number:
    case option_type::optional_number:
      return {"0.25", "0.5"};
    default:
      return {"5", "6"};
  }
}

TEST(Properties, KeyClassificationIsComplete) {
  std::set<std::string_view> ops;
  for (const std::string_view text : plain_problems) {
    const plain_problem plain(text);
    ASSERT_NE(plain.kind, nullptr) << text;
    ops.insert(plain.problem.op->name);
    std::set<std::string_view> names;
    std::string identity, size;
    for (const demand_field& field : plain.kind->fields) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
      ASSERT_NE(field.value, nullptr) << field.name;
      const bool usual = field.value(plain.asked()) == field.usual;
      std::string& line = field.part == key_part::identity ? identity : size;
      if (field.part == key_part::none || (field.part == key_part::identity && usual)) continue;
      line.append(line.empty() ? "" : " ").append(field.name);
    }
    const key_text key = key_text_of(*plain.kind, plain.asked(), 4, device_kind::cpu);
    EXPECT_EQ(names_in(key.identity), identity);
    EXPECT_EQ(names_in(key.size), size + " threads");
  }
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) {
      EXPECT_TRUE(ops.contains(op.name)) << op.name << " has no plain problem in this test";
    }
  }
}

TEST(Key, OptionsThatAreFreeLeaveTheDemandAndAllOthersChangeIt) {
  for (const std::string_view text : plain_problems) {
    const plain_problem plain(text);
    const auto options = plain.problem.op->form->options;
    for (std::size_t i = 0; i < options.size(); ++i) {
      if ((plain.problem.op->excluded >> i & 1u) != 0) continue;
      bool changes = false;
      for (const std::string& word : words_for(options[i])) {
        plain_problem other(text);
        ASSERT_TRUE(text::read_option(options[i], word, other.problem.options.data())) << word;
        changes = changes || other.asked() != plain.asked();
      }
      EXPECT_EQ(changes, !options[i].free) << plain.problem.op->name << ' ' << options[i].name;
    }
  }
}

TEST(Key, TensorsThatAreFreeLeaveTheDemandAndAllOthersChangeIt) {
  for (const std::string_view text : plain_problems) {
    const plain_problem plain(text);
    const operation& op = *plain.problem.op;
    const auto forms = op.form->tensors;
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const bool optional = ((op.taken & ~op.required) >> i & 1u) != 0;
      if (!optional) continue;
      plain_problem other(text);
      for (std::size_t j = 0; j < forms.size(); ++j) {
        // Offsets are of use together only.
        const bool offsets = forms[i].holds == tensor_contents::offsets &&
                             forms[j].holds == tensor_contents::offsets;
        if (i != j && !offsets) continue;
        tensor_view& view = other.problem.tensors[j];
        view = view.present() ? tensor_view() : shaped(dtype::i32, {3, 4, 5, 6});
      }
      EXPECT_EQ(other.asked() != plain.asked(), !forms[i].free) << op.name << ' ' << forms[i].name;
    }
  }
}

/// A change of the problem, and whether its lines in tables are others.
struct variant {
  std::string_view what;
  bool changes_identity;
  std::string_view text;
};

TEST(Key, FieldsEnterItAsTheyAreClassified) {
  constexpr std::string_view base =
      "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32";
  const variant variants[] = {
      {"op", false, "attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32"},
      {"q", true, "flash_attention q=[2,64,8,64]bf16 k=[2,64,8,64] causal=true seqlens_k=[2]i32"},
      {"k", true, "flash_attention q=[2,64,8,64]f32 k=[2,64,2,64] causal=true seqlens_k=[2]i32"},
      {"v", true,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,32] causal=true "
       "seqlens_k=[2]i32"},
      {"causal", true, "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] seqlens_k=[2]i32"},
      {"seqlens_k", true, "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true"},
      {"softmax_scale", false,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "softmax_scale=0.5"},
      {"causal_alignment", false,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "causal_alignment=top_left"},
      {"dropout_seed", false,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "dropout_seed=7"},
      {"dropout_probability", true,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "dropout_probability=0.5"},
      {"logits_soft_cap", true,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "logits_soft_cap=5"},
      {"sinks", true,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "sinks=[8,1]f32"},
      {"bias_pre", true,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "bias_pre=[1,1,64,64]f32"},
      {"normalize", true,
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "normalize=false"},
  };
  const auto identity = [](std::string_view text) {
    return std::string(
        attention_key_text(demand_of(*parse_problem<flash_problem>(text)), 8, device_kind::cpu)
            .identity.view());
  };
  for (const auto& [what, changes_identity, text] : variants) {
    EXPECT_EQ(identity(text) != identity(base), changes_identity) << what;
  }
}

TEST(Key, ReadsAsNamesAndNumbers) {
  const auto key = [](std::string_view text) {
    return attention_key_text(demand_of(*parse_problem<flash_problem>(text)), 6, device_kind::cpu);
  };
  const key_text decode =
      key("flash_attention q=[3,1,32,64]bf16 k=[3,5000,8,64] window_left=127 window_right=0 "
          "sinks=[32,1]f32");
  EXPECT_EQ(decode.identity.view(),
            "type=bf16 mask=window features=sinks head_dim=64 v_head_dim=64 group=4 phase=decode");
  EXPECT_EQ(decode.size.view(), "q_len=1 kv_len=8192 batch_heads=32 window=128 threads=8");
  EXPECT_TRUE(decode.identity.complete());
  const key_text every = attention_key_text(
      [] {
        attention_demand all = demand_of(*parse_problem<flash_problem>(
            "flash_attention q=[1,64,8,256]bf16 k=[1,64,8,256] window_left=1"));
        all.features = every_feature;
        all.sizes.q_len = all.sizes.kv_len = all.sizes.batch = std::int64_t{1} << 40;
        return all;
      }(),
      4096, device_kind::cpu, bits_promise::batch_invariant);
  EXPECT_TRUE(every.identity.complete()) << "the longest key has room";
  EXPECT_TRUE(every.size.complete());
  EXPECT_TRUE(every.identity.view().ends_with(" phase=prefill batch_invariant=true"));
}

TEST(Key, WritersNeverPassTheirRoom) {
  short_text<20> line;
  line += "type=f32 mask=full ";
  EXPECT_TRUE(line.complete());
  (line += "f").append(12);
  EXPECT_FALSE(line.complete());
  EXPECT_EQ(line.view(), "type=f32 mask=full f");
  line += ' ';
  EXPECT_EQ(line.view().size(), 20u);
  // Nothing that a family calls a field can be longer than a line in the worst case.
  for (const family* kind : families()) {
    std::size_t identity = 0, size = 0;
    for (const demand_field& field : kind->fields) {
      std::size_t longest = 20;  // digits of an int64
      if (!field.words.empty()) longest = 0;
      for (const std::string_view word : field.words) {
        longest = field.is_set ? longest + word.size() + 1 : std::max(longest, word.size());
      }
      if (field.part == key_part::none) continue;
      (field.part == key_part::identity ? identity : size) += field.name.size() + 2 + longest;
    }
    EXPECT_LE(identity + std::string_view("batch_invariant=true").size(), max_key_text)
        << kind->name;
    EXPECT_LE(size + std::string_view("threads=2147483648").size(), max_key_text) << kind->name;
  }
}

TEST(Key, SizesAreThoseOfTheNextPowerOfTwo) {
  EXPECT_EQ(bucket_top(0), 0);
  EXPECT_EQ(bucket_top(-7), 0);
  EXPECT_EQ(bucket_top(1), 1);
  for (int power = 1; power < 62; ++power) {
    const std::int64_t size = std::int64_t{1} << power;
    EXPECT_EQ(bucket_top(size), size);
    EXPECT_EQ(bucket_top(size + 1), 2 * size);
    if (power > 1) {
      EXPECT_EQ(bucket_top(size - 1), size);
    }
  }
  EXPECT_EQ(bucket_top(std::numeric_limits<std::int64_t>::max()), std::int64_t{1} << 62);
}

TEST(Key, DeviceClassesTellApartWhatChangesTimings) {
  device_facts device = device_with(backend::cpu_avx2, 6);
  EXPECT_EQ(device_class_of(device).view(), "cpu_avx2.l1d=32K.l2=1M.cores=8");
  device.l2_bytes = 1280 * 1024;
  device.l1d_bytes = 1000;
  EXPECT_EQ(device_class_of(device).view(), "cpu_avx2.l1d=1000.l2=1280K.cores=8");
}

TEST(Key, EqualDemandsHaveEqualHashesAndOthersDoNot) {
  std::set<std::uint64_t> hashes;
  int problems = 0;
  for (int q = 1; q < 40; ++q) {
    for (int k = 1; k < 40; ++k) {
      const attention_demand demand = demand_of(
          *parse_problem<flash_problem>("flash_attention q=[1," + std::to_string(q) +
                                        ",8,64]f32 k=[1," + std::to_string(k) + ",8,64]"));
      hashes.insert(tessera::demand(demand).hash());
      ++problems;
    }
  }
  EXPECT_EQ(hashes.size(), static_cast<std::size_t>(problems));
}

}  // namespace
}  // namespace tessera::testing
