// What is in force in a process and on a thread: event sink, profiler, policies, overlays, tables.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/runtime/tables.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera {

constinit std::atomic<const event_sink*> impl::process_sink{nullptr};

const event_sink* set_event_sink(const event_sink* sink) noexcept {
  return impl::process_sink.exchange(sink, std::memory_order_acq_rel);
}

namespace {

/// Length of the UTF-8 character at the start of `text`; 0 if there is none.
std::size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool beyond = (lead == 0xED && byte(1) >= 0xA0) || (lead == 0xF4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : length;
}

/// The control character at the start of `text`, a whole character; -1 if it is another one.
int control_character(std::string_view text) noexcept {
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x20 || byte == 0x7f) return byte;
  const auto next = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0;
  return byte == 0xC2 && next < 0xA0 ? next : -1;  // U+0080 to U+009F
}

[[gnu::cold]] void append_json(std::string& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const std::size_t length = character_length(text);
    if (length == 0) {
      out += "\\ufffd";
    } else if (byte == '"' || byte == '\\') {
      (out += '\\') += text.front();
    } else if (byte == '\n') {
      out += "\\n";
    } else if (const int control = control_character(text); control >= 0) {
      const auto code = static_cast<std::size_t>(control);
      ((out += "\\u00") += digits[code >> 4]) += digits[code & 15];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

}  // namespace

[[gnu::cold]] std::string json_of(const event& what) {
  std::string line = "{\"event\":";
  append_json(line, name_of(what.kind));
  append_json(line += ",\"op\":", what.op);
  append_json(line += ",\"row\":", what.row);
  append_json(line += ",\"message\":", what.message);
  return line += '}';
}

void event_line_writer::deliver(void* receiver, const event& what) noexcept {
  const auto* const to = static_cast<const event_line_writer*>(receiver);
  if (to->write_ != nullptr) to->write_(to->state_, json_of(what) + '\n');
}

namespace {

constinit std::atomic<const profiler*> process_profiler{nullptr};

/// A range around a launch, if somebody profiles.
class launch_range {
 public:
  launch_range(const instance& row, const problem_view& problem) : to_(installed_profiler()) {
    if (to_ != nullptr) [[unlikely]]
      begin(row, problem);
  }
  ~launch_range() {
    if (to_ != nullptr && to_->end != nullptr) [[unlikely]]
      to_->end(to_->state);
  }
  launch_range(const launch_range&) = delete;
  launch_range& operator=(const launch_range&) = delete;

 private:
  [[gnu::cold, gnu::noinline]] void begin(const instance& row, const problem_view& problem) {
    if (to_->begin == nullptr) return;
    if (to_->names == range_names::row) return to_->begin(to_->state, row.name);
    to_->begin(to_->state, std::string(row.name) + " " + text_of(problem));
  }

  const profiler* to_;
};

}  // namespace

const profiler* set_profiler(const profiler* one) noexcept {
  return process_profiler.exchange(one, std::memory_order_acq_rel);
}

const profiler* installed_profiler() noexcept {
  if (process_profiler.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return process_profiler.load(std::memory_order_acquire);
}

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

table_locations process_table_locations() {
  return locate_tables(process_environment().table_directory,
                       [](const char* name) -> const char* { return std::getenv(name); });
}

namespace {

constinit std::mutex tables_guard;

/// Made at first use: a shared pointer of the process would have to be destroyed at its end, while
/// other threads may still choose.
std::shared_ptr<const lookup_tables>& tables_of_process() {
  static auto* const tables = new std::shared_ptr<const lookup_tables>();
  return *tables;
}

}  // namespace

std::shared_ptr<const lookup_tables> tables_in_force() {
  const std::lock_guard lock(tables_guard);
  std::shared_ptr<const lookup_tables>& tables = tables_of_process();
  if (tables == nullptr) tables = load_lookup_tables(process_table_locations());
  return tables;
}

void use_tables(std::shared_ptr<const lookup_tables> tables) {
  std::shared_ptr<const lookup_tables> before;  // destroyed outside the lock
  {
    const std::lock_guard lock(tables_guard);
    before = std::exchange(tables_of_process(), std::move(tables));
  }
  forget_selections();
}

void reload_tables() {
  use_tables(load_lookup_tables(process_table_locations()));
}

}  // namespace tessera
