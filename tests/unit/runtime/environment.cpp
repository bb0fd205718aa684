// The environment and the device.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/processor_model.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera::testing {
namespace {

std::map<std::string, std::string> variables;

const char* look_up(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

environment with(std::map<std::string, std::string> values) {
  variables = std::move(values);
  return read_environment(look_up);
}

TEST(Environment, ReadsEveryVariable) {
  const environment all = with({{"TESSERA_EXPLAIN", "2"},
                                {"TESSERA_CPU", "avx512_bf16"},
                                {"TESSERA_ROW", "attention=a.b,flash_attention=c.d"},
                                {"TESSERA_OVERLAY", "attention: q_len=1 => e"},
                                {"TESSERA_TABLE_DIR", "/tables"},
                                {"TESSERA_RECORD", "/trace"},
                                {"OMP_NUM_THREADS", "4,2"}});
  EXPECT_TRUE(all.warnings.empty());
  EXPECT_EQ(all.explain, 2);
  EXPECT_EQ(all.cpu, backend::cpu_avx512_bf16);
  ASSERT_EQ(all.rows.size(), 2u);
  EXPECT_EQ(all.rows[0].op, "attention");
  EXPECT_EQ(all.rows[0].row, "a.b");
  EXPECT_EQ(all.rows[1].op, "flash_attention");
  EXPECT_EQ(all.rows[1].row, "c.d");
  ASSERT_TRUE(all.rules);
  EXPECT_EQ(all.rules->rules().size(), 1u);
  EXPECT_EQ(all.table_directory, "/tables");
  EXPECT_EQ(all.record_file, "/trace");
  EXPECT_EQ(all.threads, 4);
}

TEST(Environment, OperationsAreReadByTheirAliases) {
  const environment all =
      with({{"TESSERA_ROW", "kda=a.b,mamba2=c.d"}, {"TESSERA_OVERLAY", "ssm1: => e"}});
  EXPECT_TRUE(all.warnings.empty());
  ASSERT_EQ(all.rows.size(), 2u);
  EXPECT_EQ(all.rows[0].op, "kernel_delta_attention");
  EXPECT_EQ(all.rows[1].op, "state_space_v2");
  ASSERT_TRUE(all.rules);
  ASSERT_EQ(all.rules->rules().size(), 1u);
  EXPECT_EQ(all.rules->rules()[0].op, "state_space_v1");
}

TEST(Environment, UnsetAndEmptyAreDefaults) {
  for (const auto& values : {std::map<std::string, std::string>{},
                             {{"TESSERA_EXPLAIN", ""}, {"TESSERA_CPU", ""}, {"TESSERA_ROW", ""}}}) {
    const environment all = with(values);
    EXPECT_TRUE(all.warnings.empty());
    EXPECT_EQ(all.explain, 0);
    EXPECT_EQ(all.cpu, std::nullopt);
    EXPECT_TRUE(all.rows.empty());
    EXPECT_EQ(all.threads, 0);
  }
}

TEST(Properties, UnknownEnvironmentValuesProduceOneWarningThatNamesTheValidOnes) {
  const auto warning = [](const char* name, const char* value) {
    const environment all = with({{name, value}});
    EXPECT_EQ(all.warnings.size(), 1u) << name;
    return all.warnings.empty() ? std::string() : all.warnings.front();
  };
  EXPECT_EQ(warning("TESSERA_EXPLAIN", "yes"),
            "TESSERA_EXPLAIN: 'yes' is not a value it takes, and is ignored; valid are 0, 1, 2, 3");
  EXPECT_EQ(warning("TESSERA_EXPLAIN", "4"),
            "TESSERA_EXPLAIN: '4' is not a value it takes, and is ignored; valid are 0, 1, 2, 3");
  EXPECT_EQ(warning("TESSERA_CPU", "sse9"),
            "TESSERA_CPU: 'sse9' is not a value it takes, and is ignored; valid are generic, avx2, "
            "avx512, avx512_vnni, avx512_bf16, amx_bf16");
  std::string ops;
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) {
      text::append_names(ops, op);
    }
  }
  EXPECT_EQ(warning("TESSERA_ROW", "softmax=row"),
            "TESSERA_ROW: 'softmax=row' is not a value it takes, and is ignored; valid are "
            "<op>=<row> with op one of " +
                ops);
  EXPECT_EQ(warning("TESSERA_ROW", "attention"),
            "TESSERA_ROW: 'attention' is not a value it takes, and is ignored; valid are "
            "<op>=<row> with op one of " +
                ops);
  EXPECT_EQ(warning("TESSERA_OVERLAY", "*: => a b"),
            "TESSERA_OVERLAY: is ignored; overlay: line 1: 'a b' is no row, must be one name or "
            "pattern");
  EXPECT_EQ(
      warning("TESSERA_OVERLAY", "/no/such/file"),
      "TESSERA_OVERLAY: is ignored; /no/such/file: cannot be read: No such file or directory");
  EXPECT_EQ(warning("OMP_NUM_THREADS", "many"),
            "OMP_NUM_THREADS: 'many' is not a value it takes, and is ignored; valid are positive "
            "numbers");
}

TEST(Device, IsPlausible) {
  const device_facts found = detect_device();
  EXPECT_EQ(found.kind, device_kind::cpu);
  EXPECT_GE(found.physical_cores, 1);
  EXPECT_GE(found.hardware_threads, found.physical_cores);
  EXPECT_GE(found.available_threads, 1);
  EXPECT_GE(found.sockets, 1);
  EXPECT_GE(found.l1d_bytes, 8 * 1024);
  EXPECT_GE(found.l2_bytes, found.l1d_bytes);
  EXPECT_LE(this_device().highest, found.highest);
  EXPECT_TRUE(this_device().runs(backend::cpu_generic));
}

TEST(Device, ModelsTellHowOftenBf16ProductsStart) {
  const auto percent = [](unsigned vendor, unsigned signature) {
    return impl::bf16_dot_percent_of(prim::processor_model_of(vendor, signature));
  };
  constexpr unsigned amd = 0x444D4163;
  constexpr unsigned intel = 0x6C65746E;
  EXPECT_EQ(percent(amd, 0x00A10F11), 100) << "EPYC 9004: family 25, model 17";
  EXPECT_EQ(percent(amd, 0x00A70F41), 100) << "Ryzen 7040: family 25, model 116";
  EXPECT_EQ(percent(intel, 0x000806F8), 25) << "Sapphire Rapids: family 6, model 143";
  EXPECT_EQ(percent(intel, 0x000C06F2), 25) << "Emerald Rapids: family 6, model 207";
  EXPECT_EQ(percent(intel, 0x0005065B), 0) << "Cooper Lake: family 6, model 85";
  EXPECT_EQ(percent(amd, 0x000806F8), 0) << "a model of another vendor";
  EXPECT_EQ(percent(0x68747541, 0x00A10F11), 0) << "a vendor that is not known";
  EXPECT_TRUE(prim::is_zen_4(prim::processor_model_of(amd, 0x00A10F11)));
  EXPECT_FALSE(prim::is_zen_4(prim::processor_model_of(amd, 0x00B00F21))) << "EPYC 9005, Zen 5";
  EXPECT_FALSE(prim::is_zen_4(prim::processor_model_of(intel, 0x000806F8)));
  EXPECT_EQ(detect_device().bf16_dot_percent > 0 && !has_bf16_products(detect_device().highest),
            false);
}

TEST(Device, AgreesWithTheCompilerAboutThisMachine) {
#if defined(__x86_64__)
  const backend highest = detect_device().highest;
  EXPECT_EQ(highest >= backend::cpu_avx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(highest >= backend::cpu_avx512,
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  if (highest >= backend::cpu_avx512) {
    EXPECT_EQ(highest >= backend::cpu_avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
  }
#else
  EXPECT_EQ(detect_device().highest, backend::cpu_generic);
#endif
}

TEST(Device, HasTilesWhereTheyAreGranted) {
  const device_facts device = detect_device();
  EXPECT_EQ(device.highest == backend::cpu_amx_bf16, device.tiles == tile_access::granted);
  EXPECT_EQ(reason_of(tile_access::granted), "");
  EXPECT_NE(reason_of(tile_access::absent), reason_of(tile_access::not_saved));
  EXPECT_NE(reason_of(tile_access::not_saved), reason_of(tile_access::refused));
}

TEST(Device, RunsWhatItsInstructionSetContains) {
  device_facts device;
  device.highest = backend::cpu_avx512;
  EXPECT_TRUE(device.runs(backend::cpu_avx2));
  EXPECT_TRUE(device.runs(backend::cpu_avx512));
  EXPECT_FALSE(device.runs(backend::cpu_avx512_vnni));
  EXPECT_FALSE(device.runs(backend::cpu_avx512_bf16));
  device.kind = device_kind::cuda;
  EXPECT_FALSE(device.runs(backend::cpu_generic));
}

}  // namespace
}  // namespace tessera::testing
