// Which mean pooling rows can run which problems, and what is in the way if one cannot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

/// The first thing that keeps a row from running a problem.
enum class mean_pooling_mismatch : std::uint8_t { none, pass, type };

/// Compares a row with what is asked; the device is not looked at. Rows take every size and option.
constexpr mean_pooling_mismatch mismatch_of(const mean_pooling_config& config,
                                            const mean_pooling_demand& demand) noexcept {
  if (config.pass != demand.pass) return mean_pooling_mismatch::pass;
  if (config.type != demand.type) return mean_pooling_mismatch::type;
  return mean_pooling_mismatch::none;
}

/// The same for a problem; its shapes must fit together (see `lower`).
constexpr mean_pooling_mismatch mismatch_of(const mean_pooling_config& config,
                                            const mean_pooling_problem& problem) noexcept {
  return mismatch_of(config, demand_of(problem));
}

/// The mismatch as a sentence with both sides: "dtype is f32, the row has bf16".
inline std::string sentence_of(mean_pooling_mismatch mismatch, const mean_pooling_config& config,
                               const mean_pooling_demand& demand) {
  const auto sides = [](std::string_view what, std::string_view asked, std::string_view row) {
    return sentence({what, " is ", asked, ", the row has ", row});
  };
  switch (mismatch) {
    case mean_pooling_mismatch::none:
      return "the row runs the problem";
    case mean_pooling_mismatch::pass:
      return sides("pass", name_of(demand.pass), name_of(config.pass));
    case mean_pooling_mismatch::type:
      return sides("dtype", name_of(demand.type), name_of(config.type));
  }
  return "invalid";
}
inline std::string sentence_of(mean_pooling_mismatch mismatch, const mean_pooling_config& config,
                               const mean_pooling_problem& problem) {
  return sentence_of(mismatch, config, demand_of(problem));
}

/// How far a row is from running the problem; 0: it does.
constexpr int distance_of(const mean_pooling_config& config,
                          const mean_pooling_demand& demand) noexcept {
  return (config.pass != demand.pass ? 2 : 0) + (config.type != demand.type ? 1 : 0);
}

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const mean_pooling_config&) noexcept {
  return false;
}

}  // namespace tessera
