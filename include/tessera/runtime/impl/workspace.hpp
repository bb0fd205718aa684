// Scratch memory: 64-byte aligned, of the caller, of a plan or of the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include <tessera/spec/status.hpp>

namespace tessera {

namespace impl {

inline constexpr std::size_t workspace_alignment = 64;

struct release_workspace {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete (memory, std::align_val_t{workspace_alignment});
  }
};

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
  std::unique_ptr<std::byte, release_workspace> memory_;
  std::size_t size_ = 0;
};

}  // namespace impl

namespace {

/// Refuses memory that is too small or misaligned.
status check_workspace(std::span<std::byte> memory, std::size_t needed) {
  if (memory.size() < needed) {
    return {status_code::workspace, "workspace: has " + std::to_string(memory.size()) + " bytes, " +
                                        std::to_string(needed) + " are needed"};
  }
  const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % impl::workspace_alignment;
  if (past != 0) {
    return {status_code::workspace, "workspace: address is " + std::to_string(past) +
                                        " bytes past a multiple of " +
                                        std::to_string(impl::workspace_alignment)};
  }
  return {};
}

/// The caller's memory if there is any, else the calling thread's.
status find_workspace(std::span<std::byte> of_caller, std::size_t needed,
                      std::span<std::byte>& memory) {
  if (!of_caller.empty()) {
    memory = of_caller;
    return check_workspace(of_caller, needed);
  }
  thread_local impl::scratch_memory of_thread;
  return of_thread.reserve(needed, memory);
}

}  // namespace

}  // namespace tessera
