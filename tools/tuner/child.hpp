// Work that may crash or hang, done in a child process that is watched.
//
// The child is a fork: it inherits all memory as it is and nothing it writes comes back but its
// messages (and memory shared on purpose, see shared_memory). The work runs on a new thread of the
// child, because the OpenMP runtime of GCC keeps its threads per parent thread and a forked thread
// would wait for threads that do not exist. What the child prints is thrown away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/spec/status.hpp>

namespace tessera::tuner {

/// One message from child to parent. What `kind` and `index` mean is up to both.
struct child_message {
  std::uint32_t kind = 0;
  std::uint32_t index = 0;
  double value = 0;
  std::string text;
};

/// The child's end of the connection.
class child_channel {
 public:
  explicit child_channel(int descriptor) noexcept : descriptor_(descriptor) {}

  /// Sends a message; the child ends if nobody listens any more. Texts are cut at 4096 bytes.
  void send(std::uint32_t kind, std::uint32_t index = 0, double value = 0,
            std::string_view text = {}) const;

 private:
  int descriptor_;
};

enum class child_end : std::uint8_t {
  finished,   ///< the work returned
  crashed,    ///< a signal, an exception or an exit ended it
  timed_out,  ///< no message came within the limit, and it was killed
};

struct child_outcome {
  child_end end = child_end::finished;
  std::string text;  ///< "ended by signal 11 (Segmentation fault)", "silent for 2.0 s, killed"
};

/// Runs `work` in a child process. `receive` gets every message and returns how many seconds may
/// pass until the next one; the first may take `first_limit`. Refuses only if no process can be
/// made.
result<child_outcome> run_in_child(const std::function<void(const child_channel&)>& work,
                                   const std::function<double(const child_message&)>& receive,
                                   double first_limit);

/// Memory that parent and later children share, filled with zeros.
class shared_memory {
 public:
  shared_memory() = default;
  /// Throws std::bad_alloc if there is not that much memory.
  explicit shared_memory(std::size_t bytes);
  ~shared_memory();
  shared_memory(shared_memory&& other) noexcept;
  shared_memory& operator=(shared_memory&& other) noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_{};
};

}  // namespace tessera::tuner
