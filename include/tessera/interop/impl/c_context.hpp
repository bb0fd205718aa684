// The circumstances of a call that comes through the C interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/api/context.hpp>
#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/runtime/policy.hpp>

namespace tessera::c {

/// The library's context, and what it refers to.
class call_context {
 public:
  /// NULL gives the default.
  status read(const tessera_context* from) {
    if (from == nullptr) return {};
    tessera_context known;
    if (status done = read_struct(from, {"context"}, known); !done) return done;
    if (status done =
            check_flags({"context"}, "flags", known.flags, policy_flags | TESSERA_CHECKED);
        !done)
      return done;
    if (known.workspace == nullptr && known.workspace_bytes != 0) {
      return refuse("context: workspace is NULL, workspace_bytes is " +
                    std::to_string(known.workspace_bytes));
    }
    if (known.row != nullptr) values_.row = known.row;
    values_.threads = known.threads;
    values_.stream = known.stream;
    values_.workspace = {static_cast<std::byte*>(known.workspace), known.workspace_bytes};
    values_.checked = (known.flags & TESSERA_CHECKED) != 0;
    if ((known.flags & policy_flags) != 0) values_.policy = policy_of(known.flags);
    return {};
  }

  const context& values() const noexcept { return values_; }
  /// The same for a plan on that device.
  context values_on(device_id device) const noexcept {
    context there = values_;
    there.device = device;
    return there;
  }

 private:
  static constexpr std::uint64_t policy_flags = TESSERA_DETERMINISTIC | TESSERA_BATCH_INVARIANT |
                                                TESSERA_NO_GENERIC_ROW | TESSERA_ROW_IS_A_WISH |
                                                TESSERA_SHIPPED_TABLE | TESSERA_NO_TABLE;

  /// The policy in force, changed where a flag says so.
  static selection_policy policy_of(std::uint64_t flags) noexcept {
    selection_policy policy = policy_in_force();
    const auto has = [&](std::uint64_t flag) { return (flags & flag) != 0; };
    if (has(TESSERA_DETERMINISTIC)) policy.promise = bits_promise::deterministic;
    if (has(TESSERA_BATCH_INVARIANT)) policy.promise = bits_promise::batch_invariant;
    if (has(TESSERA_NO_GENERIC_ROW)) policy.generic = generic_use::refuse;
    if (has(TESSERA_ROW_IS_A_WISH)) policy.on_ineligible = ineligible_override::fall_through;
    if (has(TESSERA_SHIPPED_TABLE)) policy.tables = table_use::shipped_only;
    if (has(TESSERA_NO_TABLE)) policy.tables = table_use::none;
    return policy;
  }

  context values_{};
};

}  // namespace tessera::c
