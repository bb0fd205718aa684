// Where the parts of a row lie.
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/kernels/attention/common/split_kv.hpp>

namespace {

using tessera::kernels::attention::partial_results;

TEST(partial_results, have_lines_of_their_own) {
  constexpr std::uintptr_t line = 64;
  alignas(line) static std::byte memory[std::size_t{1} << 16];
  tessera::attention_kernel_args args;
  args.batch = 2;
  args.q_len = 2;
  args.q_heads = 3;
  for (const int stride : {4, 12, 16, 32, 96, 128}) {
    const auto parts = partial_results::at(memory, args, 4, stride);
    ASSERT_LE(parts.bytes(args), sizeof memory);
    std::uintptr_t end = reinterpret_cast<std::uintptr_t>(memory);
    for (std::int64_t part = 0; part < 2 * 2 * 3 * 4; ++part) {
      const auto begin = reinterpret_cast<std::uintptr_t>(parts.sum(part));
      const auto state = reinterpret_cast<std::uintptr_t>(&parts.state(part));
      EXPECT_EQ(begin % line, 0U) << stride;
      EXPECT_GE(begin, end) << stride;
      EXPECT_GE(state, begin + static_cast<std::uintptr_t>(stride) * sizeof(float)) << stride;
      end = state + sizeof parts.state(part);
    }
    EXPECT_LE(end, reinterpret_cast<std::uintptr_t>(memory) + parts.bytes(args)) << stride;
  }
}

}  // namespace
