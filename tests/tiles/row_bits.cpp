// Every row of AMX both ways on generated calls: with tile registers in memory and with those of
// the processor, where it has them. Both are right, and their bits are the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/common/tile_access.hpp>

#include "either_tiles.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/fuzz.hpp"

namespace tessera::support {
namespace {

std::vector<tested_row> rows_of_tiles() {
  std::vector<tested_row> rows = tested_rows();
  std::erase_if(rows,
                [](const tested_row& one) { return one.row->target != backend::cpu_amx_bf16; });
  return rows;
}

/// The registers are the processor's as long as it lives.
struct hardware_scope {
  explicit hardware_scope(bool on) { prim::either_tiles::are_hardware() = on; }
  ~hardware_scope() { prim::either_tiles::are_hardware() = false; }
  hardware_scope(const hardware_scope&) = delete;
  hardware_scope& operator=(const hardware_scope&) = delete;
};

class tile_rows : public testing::TestWithParam<tested_row> {
 protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("amx-bf16") || !prim::ask_for_tiles<void>()) {
      GTEST_SKIP() << "this process has no tile registers";
    }
  }
};

TEST_P(tile_rows, have_the_bits_of_registers_in_memory) {
  const auto& [kind, row] = GetParam();
  const std::uint64_t calls = fuzz_setting("TESSERA_CALLS_PER_ROW", 40);
  std::uint64_t ran = 0;
  for (const operation& op : kind->operations) {
    std::uint64_t of_operation = 0;
    for (std::uint64_t index = 0; index < calls; ++index) {
      random_source random = stream(31, index);
      call_wishes wishes;
      if (of_operation == 0) wishes.attempts = 500;  // most rows run few of the operations
      const std::unique_ptr<call_data> data = call_for(GetParam(), op, random, wishes);
      if (data == nullptr) {
        if (of_operation == 0 && index == 1) break;
        continue;
      }
      SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index) + ": " + data->text());
      const call_expectation expectation(data->call());
      std::vector<std::vector<std::byte>> bits;
      for (const bool hardware : {false, true}) {
        const hardware_scope registers(hardware);
        const context where{.row = row->name, .threads = hardware ? 2 : 1};
        ASSERT_EQ(complaints_of_call(*kind, *data, expectation, where, bits), "")
            << (hardware ? "registers of the processor" : "registers in memory");
      }
      ++of_operation;
    }
    ran = std::max(ran, of_operation);
  }
  EXPECT_GE(ran, calls / 2) << "too few calls are drawn that the row runs";
}

INSTANTIATE_TEST_SUITE_P(table, tile_rows, testing::ValuesIn(rows_of_tiles()),
                         [](const auto& tested) { return test_name(tested.param.row->name); });

}  // namespace
}  // namespace tessera::support
