// Plans behind the C interface: one opaque type for the plans of every family.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <tessera/api/flash_plan.hpp>
#include <tessera/api/mean_pooling.hpp>
#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/version.hpp>

namespace tessera::c {

/// The plans of all families.
using any_plan = std::variant<flash_plan, mean_pooling_plan>;

}  // namespace tessera::c

/// What `tessera_plan*` points to.
struct tessera_plan {
  explicit tessera_plan(tessera::c::any_plan made) : plan(std::move(made)) {
    std::visit(
        [this](const auto& one) {
          row = one.choice().row();
          tier = name_of(one.choice().tier);
          reason = name_of(one.choice().reason);
        },
        plan);
  }

  tessera::c::any_plan plan;
  std::string row;
  std::string tier;
  std::string reason;
};

namespace tessera::c {

/// The plan of one family; null for NULL and plans of others.
template <class Plan>
const Plan* plan_of(const tessera_plan* plan) noexcept {
  return plan == nullptr ? nullptr : std::get_if<Plan>(&plan->plan);
}

inline status not_a_plan(const tessera_plan* plan, std::string_view op) {
  if (plan == nullptr) return refuse("plan: is NULL");
  return refuse("plan: was made for another operation than " + std::string(op) + ", for the row " +
                plan->row);
}

}  // namespace tessera::c

extern "C" {

TESSERA_API void tessera_plan_free(tessera_plan* plan) {
  delete plan;
}

TESSERA_API std::size_t tessera_plan_workspace_bytes(const tessera_plan* plan) {
  if (plan == nullptr) return 0;
  return std::visit([](const auto& one) { return one.workspace_bytes(); }, plan->plan);
}

TESSERA_API const char* tessera_plan_row(const tessera_plan* plan) {
  return plan == nullptr ? "" : plan->row.c_str();
}

TESSERA_API const char* tessera_plan_tier(const tessera_plan* plan) {
  return plan == nullptr ? "" : plan->tier.c_str();
}

TESSERA_API const char* tessera_plan_reason(const tessera_plan* plan) {
  return plan == nullptr ? "" : plan->reason.c_str();
}

TESSERA_API std::uint32_t tessera_c_version() {
  return TESSERA_C_VERSION;
}

TESSERA_API const char* tessera_version() {
  return tessera::version.data();
}

TESSERA_API const char* tessera_code_name(std::int32_t code) {
  if (code == TESSERA_OUT_OF_MEMORY) return "out_of_memory";
  if (code == TESSERA_INTERNAL) return "internal";
  if (code < TESSERA_OK || code > TESSERA_IO) return "unknown";
  return name_of(static_cast<tessera::status_code>(code)).data();
}
}
