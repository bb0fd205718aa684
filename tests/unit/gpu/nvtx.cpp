// What a tool that reads NVTX ranges sees of a launch. The tool is in this program, as NVTX allows
// it.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <tessera/runtime/nvtx.hpp>

#include "pretended_gpu.hpp"
#include "tests/unit/api/small_call.hpp"

namespace tessera::testing {
namespace {

/// What the tool saw: the names of ranges, and "" for the end of one.
std::vector<std::string>& seen() {
  static std::vector<std::string> all;
  return all;
}

int NVTX_API begin_range(const char* name) {
  seen().emplace_back(name);
  return 0;
}

int NVTX_API end_range() {
  seen().emplace_back();
  return 0;
}

int NVTX_API attach(NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop) {
    return 0;
  }
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&begin_range);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&end_range);
  return 1;
}

class nvtx : public ::testing::Test {
 protected:
  void SetUp() override {
    InitializeInjectionNvtx2_fnptr = &attach;  // NVTX looks at its first range of the process
    seen().clear();
  }
};

TEST_F(nvtx, launches_are_ranges_named_after_rows) {
  pretended_gpus::all().reset();
  const std::array rows{pretended_row("attention.pretended")};
  const application_rows own{rows};
  small_call call{5, 9, 2, 16};
  context where;
  where.rows = &own;
  where.device = {device_kind::cuda, 1};
  const flash_attention_args args = on_gpu(call.args(), 1);
  {
    const auto made = plan(problem_of(args), where);
    ASSERT_TRUE(made) << made.message();
    ASSERT_EQ(set_profiler(&nvtx_profiler()), nullptr);
    const auto done = made->run(args);
    EXPECT_EQ(set_profiler(nullptr), &nvtx_profiler());
    ASSERT_TRUE(done) << done.message();
    ASSERT_TRUE(made->run(args));
  }
  EXPECT_EQ(seen(), (std::vector<std::string>{"attention.pretended", ""}));
}

TEST_F(nvtx, a_long_name_is_cut) {
  const std::string name(1000, 'r');
  nvtx_profiler().begin(nullptr, name);
  nvtx_profiler().end(nullptr);
  EXPECT_EQ(seen(), (std::vector<std::string>{std::string(255, 'r'), ""}));
}

}  // namespace
}  // namespace tessera::testing

#else

TEST(nvtx, launches_are_ranges_named_after_rows) {
  GTEST_SKIP() << "the CUDA toolkit's headers are not here";
}

#endif
