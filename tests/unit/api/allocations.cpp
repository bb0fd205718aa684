// What allocates: nothing that is done twice. Counts through replaced allocation functions.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/tessera.hpp>

#include "small_call.hpp"

namespace {
std::atomic<long> allocations{0};

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size == 0 ? 1 : size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// Out of line: GCC would see through it and take the pair below for a mistake.
[[gnu::noinline]] void release(void* memory) noexcept {
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t size) {
  return allocate_or_throw(size, 16);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size, 16);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size == 0 ? 1 : size, 16);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size == 0 ? 1 : size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

namespace tessera::testing {
namespace {

template <class Work>
long allocations_of(const Work& work) {
  const long before = allocations.load();
  work();
  return allocations.load() - before;
}

TEST(Allocations, ThePlannedRunMakesNone) {
  small_call call(9, 17, 2, 64);
  const flash_attention_args args = call.args();
  const auto made = plan(problem_of(args), {.threads = 1});
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 10; ++i) EXPECT_TRUE(made->run(args));
            }),
            0);
}

TEST(Allocations, TheRepeatedCallMakesNone) {
  small_call call(9, 17, 2, 64);
  const flash_attention_args args = call.args();
  const context context{.threads = 1};
  ASSERT_TRUE(flash_attention(args, {.causal = true}, context));
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 10; ++i) {
                EXPECT_TRUE(flash_attention(args, {.causal = true}, context));
              }
            }),
            0);
}

TEST(Allocations, ValidationMakesNone) {
  small_call call(9, 17, 2, 64);
  attention_kernel_args lowered;
  const flash_attention_args args = call.args();
  EXPECT_EQ(
      allocations_of([&] { EXPECT_TRUE(lower(flash_op::flash_attention, args, {}, lowered)); }), 0);
}

TEST(Allocations, AreCounted) {
  EXPECT_GT(allocations_of([] { delete new int; }) + allocations_of([] {
              std::vector<int> some(100);
              EXPECT_EQ(some.size(), 100u);
            }),
            0);
}

}  // namespace
}  // namespace tessera::testing
