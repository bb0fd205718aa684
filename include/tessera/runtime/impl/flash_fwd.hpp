// Words of the flash attention forward family: needs reflection, hence compiled once.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/runtime/flash_fwd.hpp>
#include <tessera/runtime/impl/fields.hpp>
#include <tessera/spec/flash_attention/problem_text.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>
#include <tessera/spec/flash_attention/rules.hpp>

namespace tessera {

BOOST_DESCRIBE_STRUCT(flash_demand, (),
                      (type, mask, features, causal, top_left, window_left, window_right, sizes))

static_assert(selectable_family<flash_fwd_family>);
static_assert(impl::every_field_is_classified<flash_problem, flash_attention_options>(
                  flash_fwd_family::field_classes),
              "a field of flash_problem or of its options has no class in field_classes");

/// "varlen+sinks"; "none" for the empty set.
inline void append_word(key_line& text, const flash_features& features) {
  bool first = true;
  for (std::size_t i = 0; i < all_flash_features.size(); ++i) {
    if (!features.has(all_flash_features[i])) continue;
    if (!first) text += '+';
    text += flash_feature_names[i];
    first = false;
  }
  if (first) text += "none";
}

[[gnu::cold]] std::size_t flash_fwd_family::identity_text(const flash_key& key, char* to,
                                                          std::size_t room) noexcept {
  const auto length = impl::members_text(
      key.identity, to, room, [](key_line& text, std::string_view name, const auto& value) {
        using impl::append_word;
        append_word(text, value);
        static_cast<void>(name);
      });
  // A single row is another loop: near sizes must not cross over to it.
  const std::string_view phase = key.bucket.q_len == 0 ? " phase=decode" : " phase=prefill";
  if (length <= room) phase.copy(to + length, room - length);
  return length + phase.size();
}

[[gnu::cold]] std::size_t flash_fwd_family::size_text(const flash_key& key, char* to,
                                                      std::size_t room) noexcept {
  return impl::members_text(key.bucket, to, room,
                            [](key_line& text, std::string_view name, std::uint8_t bucket) {
                              const bool unbounded_window = name == "window" && bucket == 0;
                              text.append(unbounded_window ? 0 : std::int64_t{1} << bucket);
                            });
}

[[gnu::cold]] std::span<const std::string_view> flash_fwd_family::fields() {
  return impl::field_names<flash_demand>();
}

[[gnu::cold]] std::optional<field_value> flash_fwd_family::field_of(const flash_demand& demand,
                                                                    std::string_view field) {
  return impl::field_in(demand, field);
}

[[gnu::cold]] std::string flash_fwd_family::reason_of(const flash_config& config,
                                                      const facts_type& facts, int threads) {
  const auto plural = [](std::int64_t count, const char* one) {
    return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
  };
  return std::string(enumerator_name(config.phase)) + ", " +
         plural(estimate(config, facts).items, "work item") + " for " + plural(threads, "thread");
}

[[gnu::cold]] std::string flash_fwd_family::text_of(const flash_problem& problem) {
  return to_text(problem);
}

[[gnu::cold]] result<flash_problem> flash_fwd_family::parse(std::string_view line) {
  return parse_problem(line);
}

[[gnu::cold]] std::string flash_fwd_family::wanted_row(const flash_demand& demand,
                                                       const device_facts& device,
                                                       const flash_config& chosen) {
  flash_config wanted;
  wanted.target = device.highest;
  wanted.type = demand.type;
  wanted.head_dim = demand.sizes.head_dim;
  wanted.v_head_dim = demand.sizes.v_head_dim;
  wanted.mask = mask_mode::window;
  wanted.phase = chosen.phase;
  wanted.features = base_features | demand.features;
  if (broken_table_rule(wanted) == flash_rule::bf16_dot_takes_bf16) {
    wanted.target = backend::cpu_avx512;
  }
  if (broken_table_rule(wanted) == flash_rule::decode_has_no_weights) {
    wanted.phase = flash_phase::prefill;
  }
  return std::string(name_of(resolved(wanted)).view());
}

}  // namespace tessera
