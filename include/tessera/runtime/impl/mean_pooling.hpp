// Words of the mean pooling family: needs reflection, hence compiled once.
#pragma once

#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/problem_text.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/runtime/impl/fields.hpp>
#include <tessera/runtime/mean_pooling.hpp>

namespace tessera {

static_assert(selectable_family<mean_pooling_family>);
static_assert(impl::every_field_is_classified<mean_pooling_problem, mean_pooling_options>(
                  mean_pooling_family::field_classes),
              "a field of mean_pooling_problem or of its options has no class in field_classes");

std::size_t mean_pooling_family::identity_text(const mean_pooling_key& key, char* to,
                                               std::size_t room) noexcept {
  return impl::members_text(
      key.identity, to, room,
      [](key_line& text, std::string_view, const auto& value) { impl::append_word(text, value); });
}

std::size_t mean_pooling_family::size_text(const mean_pooling_key& key, char* to,
                                           std::size_t room) noexcept {
  return impl::members_text(key.bucket, to, room,
                            [](key_line& text, std::string_view name, std::uint8_t bucket) {
                              const bool whole = name == "chunk" && bucket == 0;
                              text.append(whole ? 0 : std::int64_t{1} << bucket);
                            });
}

std::span<const std::string_view> mean_pooling_family::fields() {
  return impl::field_names<mean_pooling_demand>();
}

std::optional<field_value> mean_pooling_family::field_of(const mean_pooling_demand& demand,
                                                         std::string_view field) {
  return impl::field_in(demand, field);
}

std::string mean_pooling_family::reason_of(const mean_pooling_config& config,
                                           const facts_type& facts, int threads) {
  const auto plural = [](std::int64_t count, const char* one) {
    return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
  };
  const auto kibibytes = static_cast<std::int64_t>(facts.bytes / 1024);
  return std::string(enumerator_name(config.pass)) + ", " + std::to_string(kibibytes) + " KiB, " +
         plural(estimate(config, facts, threads).items, "work item") + " for " +
         plural(threads, "thread");
}

std::string mean_pooling_family::text_of(const mean_pooling_problem& problem) {
  return to_text(problem);
}

result<mean_pooling_problem> mean_pooling_family::parse(std::string_view line) {
  return parse_mean_pooling_problem(line);
}

std::string mean_pooling_family::wanted_row(const mean_pooling_demand& demand,
                                            const device_facts& device,
                                            const mean_pooling_config&) {
  if (!is_cpu(device.highest) || device.kind != device_kind::cpu) return {};
  mean_pooling_config wanted{.target = device.highest, .type = demand.type, .pass = demand.pass};
  if (wanted.target == backend::cpu_avx512_bf16) wanted.target = backend::cpu_avx512;
  return std::string(name_of(resolved(wanted)).view());
}

}  // namespace tessera
