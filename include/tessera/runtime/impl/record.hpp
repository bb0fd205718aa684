// Recording: one counter per distinct problem, raised by the calls themselves; text is made and the
// file is touched only when a problem is new, and when counts are appended.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>

#include <tessera/lookup/impl/descriptor.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/impl/trace_line.hpp>
#include <tessera/runtime/record.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera {

namespace {

[[gnu::cold]] status append_to_file(const std::string& path, std::string_view text) {
  const files::descriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return files::system_failure(path, "cannot be opened for appending");
  return files::write_all(file.number(), text, path);
}

/// The problems of a process and how often each was asked for.
class trace_recorder {
 public:
  explicit trace_recorder(std::string path) : path_(std::move(path)) {}

  /// The counter of a problem; lives as long as the process.
  std::atomic<std::int64_t>* counter_of(const std::string& problem) {
    const std::lock_guard lock(guard_);
    return &counters_[problem].calls;
  }

  status flush() {
    const std::lock_guard lock(guard_);
    std::string text;
    for (auto& [problem, count] : counters_) {
      count.taken = count.calls.load(std::memory_order_relaxed);
      if (count.taken == count.written) continue;
      text += line_of(trace_line{problem, count.taken - count.written}) + "\n";
    }
    if (text.empty() || path_.empty()) return {};
    if (status done = append_to_file(path_, text); !done) return done;
    for (auto& [problem, count] : counters_) count.written = count.taken;
    return {};
  }

  /// Goes on with another file. What was counted goes to the one before.
  status move_to(const std::string& path) {
    status done = flush();
    const std::lock_guard lock(guard_);
    if (done) path_ = path;
    return done;
  }

  /// Counts from here on, for no file.
  void discard() noexcept {
    const std::lock_guard lock(guard_);
    for (auto& [problem, count] : counters_) {
      count.written = count.calls.load(std::memory_order_relaxed);
    }
    path_.clear();
  }

  std::string path() {
    const std::lock_guard lock(guard_);
    return path_;
  }

 private:
  struct counter {
    std::atomic<std::int64_t> calls{0};
    std::int64_t written = 0;  ///< of these, already in the file
    std::int64_t taken = 0;    ///< of these, in the file once it is written
  };

  std::mutex guard_;
  std::string path_;
  std::map<std::string, counter> counters_;  ///< its entries stay where they are
};

constinit std::atomic<bool> is_recording{false};

/// Exists once somebody records, and then until the end: calls of other threads may still count
/// when the process ends. What is left is written then; there is nobody to tell of a failure.
trace_recorder& recorder() {
  static auto* const of_process = new trace_recorder(process_environment().record_file);
  static const struct flush_at_end {
    ~flush_at_end() { static_cast<void>(of_process->flush()); }
  } at_end;
  static_cast<void>(at_end);
  return *of_process;
}

/// Whether calls are to be counted; looks at TESSERA_RECORD the first time.
bool recording() {
  static const bool by_environment = [] {
    const bool wanted = !process_environment().record_file.empty();
    if (wanted) is_recording.store(!recorder().path().empty(), std::memory_order_relaxed);
    return wanted;
  }();
  static_cast<void>(by_environment);
  return is_recording.load(std::memory_order_relaxed);
}

inline std::atomic<std::int64_t>* counter_of(const problem_view& problem) {
  return recorder().counter_of(text_of(problem));
}

}  // namespace

status record_to(const std::string& path) {
  static_cast<void>(recording());
  if (status done = recorder().move_to(path); !done) return done;
  is_recording.store(!path.empty(), std::memory_order_relaxed);
  forget_selections();  // remembered choices carry the counters, or none
  return {};
}

status flush_recording() {
  return recording() ? recorder().flush() : status{};
}

void discard_recording() noexcept {
  if (!recording()) return;
  recorder().discard();
  is_recording.store(false, std::memory_order_relaxed);
  forget_selections();
}

std::string recording_file() {
  return recording() ? recorder().path() : std::string();
}

}  // namespace tessera
