// The generation of remembered selections.
#pragma once

#include <atomic>
#include <cstdint>

#include <tessera/runtime/memory.hpp>

namespace tessera {

namespace {
constinit std::atomic<std::uint64_t> generation{1};
}  // namespace

std::uint64_t selection_generation() noexcept {
  return generation.load(std::memory_order_relaxed);
}

void forget_selections() noexcept {
  generation.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tessera
