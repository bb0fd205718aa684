// Keys: what is in them, how they read, and that no field is forgotten.
#include <set>
#include <string>
#include <type_traits>

#include <boost/describe/class.hpp>
#include <gtest/gtest.h>

#include <tessera/families/attention/problem_text.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/fields.hpp>

#include "pretended.hpp"

namespace tessera::testing {
namespace {

struct small_options {
  double scale = 1;
};
BOOST_DESCRIBE_STRUCT(small_options, (), (scale))

struct small_problem {
  int rows = 0;
  int columns = 0;
  small_options options{};
};
BOOST_DESCRIBE_STRUCT(small_problem, (), (rows, columns, options))

/// A field was added, and nobody told the reflection.
struct undescribed_problem {
  int rows = 0;
  int columns = 0;
  int fresh = 0;
  small_options options{};
};
BOOST_DESCRIBE_STRUCT(undescribed_problem, (), (rows, columns, options))

/// A field was added, and nobody gave it a class.
struct unclassified_problem {
  int rows = 0;
  int columns = 0;
  int fresh = 0;
  small_options options{};
};
BOOST_DESCRIBE_STRUCT(unclassified_problem, (), (rows, columns, fresh, options))

constexpr std::array complete{field_class{"rows", key_class::size},
                              field_class{"columns", key_class::size},
                              field_class{"scale", key_class::ignored}};
constexpr std::array doubled{field_class{"rows", key_class::size},
                             field_class{"rows", key_class::identity},
                             field_class{"scale", key_class::ignored}};
constexpr std::array surplus{
    field_class{"rows", key_class::size}, field_class{"columns", key_class::size},
    field_class{"gone", key_class::size}, field_class{"scale", key_class::ignored}};

// runtime/impl/<family>.hpp asserts the same of each family's problem when it is compiled.
static_assert(impl::every_field_is_classified<small_problem, small_options>(complete));
static_assert(!impl::every_field_is_classified<undescribed_problem, small_options>(complete));
static_assert(!impl::every_field_is_classified<unclassified_problem, small_options>(complete));
static_assert(!impl::every_field_is_classified<small_problem, small_options>(doubled));
static_assert(!impl::every_field_is_classified<small_problem, small_options>(surplus));

TEST(Properties, KeyClassificationIsComplete) {
  EXPECT_EQ((impl::member_arity<undescribed_problem>()), 4u);
  EXPECT_EQ(member_count<undescribed_problem>, 3u);
  families::for_each([](auto one) {
    using family = typename decltype(one)::type;
    std::set<std::string_view> names;
    for (const field_class& field : family::field_classes) {
      EXPECT_TRUE(names.insert(field.field).second) << field.field;
      EXPECT_NE(name_of(field.group), "invalid");
    }
  });
}

/// Problems that differ from the first in one field.
struct variant {
  std::string_view field;
  std::string_view text;
};

TEST(Key, FieldsEnterItAsTheyAreClassified) {
  constexpr std::string_view base =
      "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32";
  const variant variants[] = {
      {"op", "attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32"},
      {"q", "flash_attention q=[2,64,8,64]bf16 k=[2,64,8,64] causal=true seqlens_k=[2]i32"},
      {"k", "flash_attention q=[2,64,8,64]f32 k=[2,64,2,64] causal=true seqlens_k=[2]i32"},
      {"v",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] v=[2,64,8,32] causal=true "
       "seqlens_k=[2]i32"},
      {"causal", "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] seqlens_k=[2]i32"},
      {"seqlens_k", "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true"},
      {"softmax_scale",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "softmax_scale=0.5"},
      {"causal_alignment",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "causal_alignment=top_left"},
      {"dropout_seed",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "dropout_seed=7"},
      {"dropout_probability",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "dropout_probability=0.5"},
      {"logits_soft_cap",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "logits_soft_cap=5"},
      {"sinks",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "sinks=[8,1]f32"},
      {"bias_pre",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "bias_pre=[1,1,64,64]f32"},
      {"normalize",
       "flash_attention q=[2,64,8,64]f32 k=[2,64,8,64] causal=true seqlens_k=[2]i32 "
       "normalize=false"},
  };
  const auto identity = [](std::string_view text) {
    return std::string(
        question(text).asked().notes == nullptr
            ? attention_key_text(demand_of(*parse_problem(text)), 8, device_kind::cpu)
                  .identity.view()
            : "");
  };
  for (const auto& [field, text] : variants) {
    key_class group = key_class::size;
    for (const field_class& one : attention_family::field_classes) {
      if (one.field == field) group = one.group;
    }
    EXPECT_EQ(identity(text) != identity(base), group != key_class::ignored) << field;
  }
}

TEST(Key, ReadsAsNamesAndNumbers) {
  const auto key = [](std::string_view text) {
    return attention_key_text(demand_of(*parse_problem(text)), 6, device_kind::cpu);
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
        attention_demand all = demand_of(
            *parse_problem("flash_attention q=[1,64,8,256]bf16 k=[1,64,8,256] window_left=1"));
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
  const attention_key key = key_of(*parse_problem("flash_attention q=[1,4,8,64]f32 k=[1,4,8,64]"));
  std::array<char, 40> small{};
  small.fill('!');
  const std::size_t needed = attention_family::identity_text(key, small.data(), 20);
  EXPECT_GT(needed, 20u);
  EXPECT_EQ(small[20], '!');
  EXPECT_EQ(std::string_view(small.data(), 20), "type=f32 mask=full f");
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
      const attention_demand demand =
          demand_of(*parse_problem("flash_attention q=[1," + std::to_string(q) + ",8,64]f32 k=[1," +
                                   std::to_string(k) + ",8,64]"));
      hashes.insert(attention_family::hash_of(demand));
      ++problems;
    }
  }
  EXPECT_EQ(hashes.size(), static_cast<std::size_t>(problems));
}

}  // namespace
}  // namespace tessera::testing
