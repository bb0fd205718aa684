// Scratch memory of a launch: its alignment, its check, and memory that grows and is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include <tessera/spec/status.hpp>

namespace tessera::prim {

inline constexpr std::size_t workspace_alignment = 64;

/// Refuses memory that is too small or misaligned. Where 0 bytes are needed, any will do.
inline status check_workspace(std::span<const std::byte> memory, std::size_t needed) {
  if (memory.size() < needed) [[unlikely]] {
    return {status_code::workspace, "workspace: has " + std::to_string(memory.size()) + " bytes, " +
                                        std::to_string(needed) + " are needed"};
  }
  const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % workspace_alignment;
  if (needed > 0 && past != 0) [[unlikely]] {
    return {status_code::workspace, "workspace: address is " + std::to_string(past) +
                                        " bytes past a multiple of " +
                                        std::to_string(workspace_alignment)};
  }
  return {};
}

/// Memory that grows when more is needed and is kept.
class scratch_memory {
 public:
  /// At least `bytes` bytes, or a status that says how many there are not.
  status reserve(std::size_t bytes, std::span<std::byte>& memory) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      void* const fresh =
          bytes > PTRDIFF_MAX
              ? nullptr
              : ::operator new (bytes, std::align_val_t{workspace_alignment}, std::nothrow);
      if (fresh == nullptr) {
        return {status_code::workspace, "workspace: " + std::to_string(bytes) +
                                            " bytes are needed, and there is not that much memory"};
      }
      memory_.reset(static_cast<std::byte*>(fresh));
      size_ = bytes;
    }
    memory = {memory_.get(), size_};
    return {};
  }

 private:
  struct release {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete (memory, std::align_val_t{workspace_alignment});
    }
  };

  std::unique_ptr<std::byte, release> memory_;
  std::size_t size_ = 0;
};

/// The caller's memory if there is any, else that of the calling thread, which grows and is kept.
/// Launches of one `Sharer` use the same.
template <class Sharer>
status find_workspace(std::span<std::byte> of_caller, std::size_t needed,
                      std::span<std::byte>& memory) {
  if (!of_caller.empty()) {
    memory = of_caller;
    return check_workspace(of_caller, needed);
  }
  thread_local scratch_memory of_thread;
  return of_thread.reserve(needed, memory);
}

}  // namespace tessera::prim
