// What is in force: policy and overlays, of the process and of a thread.
#pragma once

#include <atomic>
#include <cstdint>

#include <tessera/runtime/application_rows.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/policy.hpp>

namespace tessera {

namespace {

constinit std::atomic<std::uint64_t> generation{1};
constinit std::atomic<std::uint64_t> scope_numbers{0};
constinit std::atomic<selection_policy> policy_of_process{selection_policy{}};
constinit thread_local const policy_scope* innermost_policy = nullptr;
constinit thread_local const overlay_scope* innermost_overlay = nullptr;

}  // namespace

// Acquire: whoever sees a number also sees the tables it was raised for.
std::uint64_t selection_generation() noexcept {
  return generation.load(std::memory_order_acquire);
}

void forget_selections() noexcept {
  generation.fetch_add(1, std::memory_order_acq_rel);
}

std::uint64_t next_scope_number() noexcept {
  return scope_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
}

selection_policy process_policy() noexcept {
  return policy_of_process.load(std::memory_order_relaxed);
}

selection_policy set_process_policy(selection_policy policy) noexcept {
  return policy_of_process.exchange(policy, std::memory_order_relaxed);
}

selection_policy policy_in_force() noexcept {
  return innermost_policy != nullptr ? innermost_policy->policy() : process_policy();
}

policy_scope::policy_scope(selection_policy policy) noexcept
    : policy_(policy), outer_(innermost_policy) {
  innermost_policy = this;
}

policy_scope::~policy_scope() {
  innermost_policy = outer_;
}

// A lone scope counts as its overlay, so that choices made under it before are remembered.
overlay_scope::overlay_scope(const overlay& rules) noexcept
    : rules_(rules.rules()),
      outer_(innermost_overlay),
      number_(outer_ == nullptr ? rules.number() : next_scope_number()) {
  innermost_overlay = this;
}

overlay_scope::~overlay_scope() {
  innermost_overlay = outer_;
}

const overlay_scope* overlay_scope::innermost() noexcept {
  return innermost_overlay;
}

}  // namespace tessera
