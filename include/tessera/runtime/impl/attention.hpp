// Words of the flash attention forward family: needs reflection, hence compiled once.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/families/attention/problem_text.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/runtime/attention.hpp>
#include <tessera/runtime/impl/fields.hpp>

namespace tessera {

BOOST_DESCRIBE_STRUCT(attention_demand, (),
                      (type, mask, features, causal, top_left, window_left, window_right, sizes,
                       aligned16))

static_assert(selectable_family<attention_family>);
static_assert(impl::every_field_is_classified<flash_problem, flash_attention_options>(
                  attention_family::field_classes),
              "a field of flash_problem or of its options has no class in field_classes");

/// "varlen+sinks"; "none" for the empty set.
inline void append_word(key_line& text, const attention_features& features) {
  bool first = true;
  for (std::size_t i = 0; i < all_attention_features.size(); ++i) {
    if (!features.has(all_attention_features[i])) continue;
    if (!first) text += '+';
    text += attention_feature_names[i];
    first = false;
  }
  if (first) text += "none";
}

[[gnu::cold]] std::size_t attention_family::identity_text(const attention_key& key, char* to,
                                                          std::size_t room) noexcept {
  const auto length = impl::members_text(
      key.identity, to, room, [](key_line& text, std::string_view name, const auto& value) {
        using impl::append_word;
        append_word(text, value);
        static_cast<void>(name);
      });
  // A single row is another loop: near sizes must not cross over to it.
  key_line rest;
  if (!key.identity.aligned16) rest += " aligned16=false";
  rest += key.bucket.q_len == 0 ? " phase=decode" : " phase=prefill";
  if (length <= room) rest.view().copy(to + length, room - length);
  return length + rest.view().size();
}

[[gnu::cold]] std::size_t attention_family::size_text(const attention_key& key, char* to,
                                                      std::size_t room) noexcept {
  return impl::members_text(key.bucket, to, room,
                            [](key_line& text, std::string_view name, std::uint8_t bucket) {
                              const bool unbounded_window = name == "window" && bucket == 0;
                              text.append(unbounded_window ? 0 : std::int64_t{1} << bucket);
                            });
}

[[gnu::cold]] std::span<const std::string_view> attention_family::fields() {
  return impl::field_names<attention_demand>();
}

[[gnu::cold]] std::optional<field_value> attention_family::field_of(const attention_demand& demand,
                                                                    std::string_view field) {
  return impl::field_in(demand, field);
}

[[gnu::cold]] std::string attention_family::reason_of(const attention_config& config,
                                                      const facts_type& facts, int threads) {
  const auto plural = [](std::int64_t count, const char* one) {
    return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
  };
  const work_estimate work = estimate(config, facts, threads);
  std::string words(enumerator_name(config.phase));
  if (is_cpu(config.target)) {
    return words + ", " + plural(work.items, "work item") + " for " + plural(threads, "thread");
  }
  words += ", " + plural(work.items, "block") + " of " + std::to_string(config.block_q) + " rows";
  const std::int64_t splits = predicted_splits(work, threads);
  if (splits > 1) words += ", keys in " + std::to_string(splits) + " parts";
  words += ", for " + plural(threads, "multiprocessor");
  return words + " with " + std::to_string(work.items_per_core) + " at a time";
}

[[gnu::cold]] std::string attention_family::missing_on(const attention_config& config,
                                                       const device_facts& device) {
  if (!device.runs(config.target)) return missing_backend(config.target, device);
  return "the row needs " + std::to_string(shared_memory_bytes(config)) +
         " bytes of shared memory for a block, this device has " +
         std::to_string(device.shared_bytes_per_block);
}

[[gnu::cold]] std::string attention_family::text_of(const flash_problem& problem) {
  return to_text(problem);
}

[[gnu::cold]] result<flash_problem> attention_family::parse(std::string_view line) {
  return parse_problem(line);
}

[[gnu::cold]] std::string attention_family::wanted_row(const attention_demand& demand,
                                                       const device_facts& device,
                                                       const attention_config& chosen) {
  // What keeps a row of fixed head dims from unaligned tensors is not the row list.
  const bool on_gpu = device.kind == device_kind::cuda;
  if (on_gpu && !(demand.aligned16 && is_cuda(device.highest))) return {};
  attention_config wanted;
  wanted.target = device.highest;
  wanted.type = demand.type;
  wanted.head_dim = demand.sizes.head_dim;
  wanted.v_head_dim = demand.sizes.v_head_dim;
  wanted.mask = mask_mode::window;
  wanted.phase = chosen.phase;
  wanted.features = base_features | demand.features;
  if (broken_table_rule(wanted) == attention_rule::bf16_dot_takes_bf16) {
    wanted.target = backend::cpu_avx512;
  }
  if (broken_table_rule(wanted) == attention_rule::decode_has_no_weights) {
    wanted.phase = attention_phase::prefill;
  }
  if (broken_table_rule(wanted) != attention_rule::none) return {};
  return std::string(name_of(resolved(wanted)).view());
}

}  // namespace tessera
