// What a family of kernels tells the chain of choosers about itself. Nothing in the chain knows
// more; runtime/families.hpp lists the families.
//
// A family's problem is what a user asks for. Its demand is everything a choice may depend on, read
// off the problem once: remembered choices compare the demand, eligibility and cost see nothing
// else. Its key is the demand with sizes rounded to buckets: what a lookup table is asked for.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// A field of a demand as overlays see it: a whole number, or a word.
struct field_value {
  std::string text;  ///< as problem text spells it
  std::optional<std::int64_t> number;
};

/// A row compiled: name, config, promises, launcher. One struct per family, all with these members.
template <class Instance>
concept row_instance = requires(const Instance& row) {
  { row.name } -> std::convertible_to<std::string_view>;
  { row.config.target } -> std::convertible_to<backend>;
  { row.properties } -> std::convertible_to<row_properties>;
  { row.compile_seconds } -> std::convertible_to<float>;
  { row.object_bytes } -> std::convertible_to<std::uint32_t>;
};

/// A struct of static functions and types; `runtime/<family>.hpp` has it,
/// `runtime/impl/<family>.hpp` those definitions that need reflection.
///
/// | member | what |
/// |---|---|
/// | name, semantic_version | "attention"; counts up when problem or key change their meaning |
/// | ops | the operations it serves: first words of problem text |
/// | max_log2_distance | how far a measurement of another size may stand in; 0: never |
/// | field_classes | every field of the problem with its class; see `key_class` |
/// | op_of, text_of, parse | a problem's operation, its text, and back |
/// | demand_of, hash_of | equal demands have equal hashes |
/// | without_batch | the demand that does not say how many other entries a batch has |
/// | key_of | the table key of a demand |
/// | identity_text, size_text | key text: writes at most `room` characters, returns all it needs |
/// | fields, field_of | the demand's fields by name, for overlays |
/// | runs, difference, distance | whether a row runs a demand; what is in the way; how far off |
/// | runs_on, missing_on | whether a device runs a row; what it lacks |
/// | is_generic | rows that take any problem |
/// | facts_of, estimate | what a row would have to do; see cost.hpp |
/// | reason_of, wanted_row | words for an answer; the row that would be made for a demand |
/// | registry | rows of this build; generated |
/// | code_version | digest of the sources of the kernels for one kind of device; generated |
// Version 14 of the formatter takes requires-expressions apart.
// clang-format off
template <class Family>
concept selectable_family =
    std::equality_comparable<typename Family::demand_type> &&
    std::is_trivially_copyable_v<typename Family::demand_type> &&
    std::equality_comparable<typename Family::key_type> &&
    row_instance<typename Family::instance_type> &&
    std::same_as<std::remove_cvref_t<decltype(Family::instance_type::config)>,
                 typename Family::config_type> &&
    requires(const typename Family::problem_type& problem,
             const typename Family::demand_type& demand, const typename Family::key_type& key,
             const typename Family::config_type& config, const typename Family::facts_type& facts,
             const device_facts& device, std::string_view word, char* buffer, std::size_t room,
             int threads) {
  { Family::name } -> std::convertible_to<std::string_view>;
  { Family::semantic_version } -> std::convertible_to<int>;
  { Family::max_log2_distance } -> std::convertible_to<double>;
  { std::span<const std::string_view>(Family::ops) };
  { std::span<const field_class>(Family::field_classes) };
  { Family::op_of(problem) } -> std::same_as<std::string_view>;
  { Family::text_of(problem) } -> std::same_as<std::string>;
  { Family::parse(word) } -> std::same_as<result<typename Family::problem_type>>;
  { Family::demand_of(problem) } noexcept -> std::same_as<typename Family::demand_type>;
  { Family::hash_of(demand) } noexcept -> std::same_as<std::uint64_t>;
  { Family::without_batch(demand) } noexcept -> std::same_as<typename Family::demand_type>;
  { Family::key_of(demand) } noexcept -> std::same_as<typename Family::key_type>;
  { Family::identity_text(key, buffer, room) } noexcept -> std::same_as<std::size_t>;
  { Family::size_text(key, buffer, room) } noexcept -> std::same_as<std::size_t>;
  { Family::fields() } -> std::convertible_to<std::span<const std::string_view>>;
  { Family::field_of(demand, word) } -> std::same_as<std::optional<field_value>>;
  { Family::runs(config, demand) } noexcept -> std::same_as<bool>;
  { Family::difference(config, demand) } -> std::same_as<std::string>;
  { Family::runs_on(config, device) } noexcept -> std::same_as<bool>;
  { Family::missing_on(config, device) } -> std::same_as<std::string>;
  { Family::distance(config, demand) } noexcept -> std::same_as<int>;
  { Family::is_generic(config) } noexcept -> std::same_as<bool>;
  { Family::facts_of(demand) } noexcept -> std::same_as<typename Family::facts_type>;
  { Family::estimate(config, facts, threads) } noexcept -> std::same_as<work_estimate>;
  { Family::reason_of(config, facts, threads) } -> std::same_as<std::string>;
  { Family::wanted_row(demand, device, config) } -> std::same_as<std::string>;
  { Family::registry() } noexcept -> std::same_as<std::span<const typename Family::instance_type>>;
  { Family::code_version(device.kind) } noexcept -> std::same_as<std::string_view>;
};
// clang-format on

/// What calls and plans need besides; `runtime/impl/<family>_operation.hpp` defines the functions.
///
/// | member | what |
/// |---|---|
/// | args_type, kernel_args_type | views of one call; what a launcher receives |
/// | planned_type | what a plan keeps to check the tensors of its runs quickly |
/// | lower_problem | validates a problem; fills the arguments a call of these shapes would have |
/// | plan_tensors | makes the planned_type of a valid problem on a device |
/// | lower_run | validates the tensors of a planned run and fills their part of the arguments |
/// | is_empty | the call has no output element to compute |
/// | finish | side outputs that no kernel writes, after a launch of the row |
// clang-format off
template <class Family>
concept executable_family = selectable_family<Family> &&
    requires(const typename Family::problem_type& problem, const typename Family::args_type& args,
             typename Family::kernel_args_type& lowered,
             const typename Family::kernel_args_type& valid,
             const typename Family::planned_type& planned,
             const typename Family::instance_type& row, const launch_context& where, int threads,
             device_id device) {
  { Family::lower_problem(problem, lowered) } -> std::same_as<status>;
  { Family::plan_tensors(problem, device) } -> std::same_as<typename Family::planned_type>;
  { Family::lower_run(problem, planned, valid, args, lowered) } -> std::same_as<status>;
  { Family::is_empty(valid) } -> std::same_as<bool>;
  { Family::finish(row, args, valid, where) } -> std::same_as<status>;
  { row.workspace_bytes(valid, threads) } -> std::same_as<std::size_t>;
  { row.launch(valid, where) } -> std::same_as<status>;
};
// clang-format on

/// Why a device runs no row of that backend; empty if it runs them.
[[gnu::cold]] inline std::string missing_backend(backend target, const device_facts& device) {
  if (device.runs(target)) return {};
  if (kind_of(target) != device.kind) {
    return std::string("the row is for ")
        .append(is_cpu(target) ? "the CPU" : "GPUs")
        .append(", the device is ")
        .append(text_of(device.id()));
  }
  std::string sentence("the row needs ");
  sentence.append(name_of(target)).append(", this device has ");
  if (device.kind == device_kind::cpu) return sentence.append(name_of(device.highest));
  return sentence + "compute capability " + std::to_string(device.compute_capability / 10) + "." +
         std::to_string(device.compute_capability % 10);
}

}  // namespace tessera
