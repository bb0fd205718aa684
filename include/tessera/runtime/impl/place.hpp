// Where a call runs: a device, what is known of it, how many workers, which stream; and its scratch
// memory: the caller's, that of the caller's allocator, or the library's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <tessera/api/context.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace tessera {

namespace {

/// More threads than any machine has; a request beyond is a mistake.
constexpr int most_threads = 4096;

int default_threads() {
#if defined(_OPENMP)
  return std::clamp(omp_get_max_threads(), 1, most_threads);
#else
  const int wanted = process_environment().threads;
  return std::clamp(wanted > 0 ? wanted : this_device().available_threads, 1, most_threads);
#endif
}

/// The threads of a context; 0 stands for the default.
status resolve_threads(int wanted, int& threads) {
  if (wanted < 0 || wanted > most_threads) {
    return refusal(status_code::invalid_argument,
                   {"context.threads: is ", wanted, ", must be 0 to ", most_threads});
  }
  threads = wanted == 0 ? default_threads() : wanted;
  return {};
}

/// The same for a device that is not there: what it has, unless OMP_NUM_THREADS says another.
status resolve_threads_of(const device_facts& device, int wanted, int& threads) {
  if (status done = resolve_threads(wanted, threads); !done || wanted != 0) return done;
  const int asked = process_environment().threads;
  threads = std::clamp(asked > 0 ? asked : device.available_threads, 1, most_threads);
  return {};
}

}  // namespace

namespace impl {

struct place {
  device_id device{};
  const device_facts* facts = nullptr;
  int workers = 1;  ///< threads; of a GPU its multiprocessors
  void* stream = nullptr;

  bool is_gpu() const noexcept { return device.kind != device_kind::cpu; }
};

}  // namespace impl

namespace {

/// A stream on the CPU is a mistake.
status check_stream(device_id device, const void* stream) {
  if (stream == nullptr || device.kind != device_kind::cpu) [[likely]]
    return {};
  return {status_code::invalid_argument,
          "stream: is given, and this call runs on the CPU, which has none"};
}

[[gnu::cold, gnu::noinline]] status find_gpu(device_id device, impl::place& spot) {
  const result<const device_facts*> found = find_device(device);
  if (!found) return found.failure();
  spot.facts = *found;
  spot.workers = spot.facts->multiprocessors;
  return {};
}

/// The place of a call whose tensors lie on `device`.
status find_place(device_id device, const context& where, impl::place& spot) {
  spot.device = device;
  spot.stream = where.stream;
  if (spot.is_gpu()) return find_gpu(device, spot);
  if (status done = check_stream(device, where.stream); !done) return done;
  spot.facts = &this_device();
  return resolve_threads(where.threads, spot.workers);
}

/// A place that need not be there.
status find_place_on(const device_facts& device, const context& where, impl::place& spot) {
  spot.device = device.id();
  spot.facts = &device;
  spot.workers = device.multiprocessors;
  return spot.is_gpu() ? status() : resolve_threads_of(device, where.threads, spot.workers);
}

/// A failure on a GPU with the names of the GPU and of what failed there.
[[gnu::cold]] status failure_on(const impl::place& spot, std::string_view what,
                                const status& failed) {
  return refusal(failed.code(), {spot.device, " (", spot.facts->product_name(), "): ", what, ": ",
                                 failed.message()});
}

}  // namespace

namespace impl {

struct calling_thread;

/// Scratch memory that is not the caller's own; gives it back.
class owned_memory {
 public:
  owned_memory() = default;
  ~owned_memory() {
    if (memory_ != nullptr) [[unlikely]]
      from_.release(from_.state, device_, memory_, bytes_, stream_);
  }
  owned_memory(const owned_memory&) = delete;
  owned_memory& operator=(const owned_memory&) = delete;

  /// From the caller's allocator.
  [[gnu::cold]] status take(const workspace_allocator& from, const place& spot, std::size_t bytes,
                            std::span<std::byte>& memory) {
    if (from.allocate == nullptr || from.release == nullptr) {
      return {status_code::invalid_argument, "context.allocator: has no functions to call"};
    }
    memory = {};
    if (bytes == 0) return {};
    void* const fresh = from.allocate(from.state, spot.device, bytes, spot.stream);
    if (fresh == nullptr) {
      return refusal(status_code::workspace,
                     {"workspace: ", bytes, " bytes are needed, context.allocator gave none"});
    }
    hold(fresh, from, spot, bytes, memory);
    return prim::check_workspace(memory, bytes);
  }

  /// For one call on a GPU, which is current: given back in the order of its stream.
  status take_for_call(const place& spot, std::size_t bytes, std::span<std::byte>& memory) {
    memory = {};
    if (bytes == 0) return {};
    bool capturing = false;
    if (status done = cuda::is_capturing(spot.stream, capturing); !done) return done;
    if (capturing) {
      return refusal(status_code::workspace,
                     {"workspace: ", bytes,
                      " bytes are needed while the stream is captured; give context.workspace or "
                      "context.allocator, or run a plan that was made before"});
    }
    void* fresh = nullptr;
    if (status done = cuda::allocate(bytes, spot.stream, fresh); !done) return done;
    const auto release = [](void*, device_id, void* what, std::size_t, void* stream) noexcept {
      cuda::release(what, stream);
    };
    hold(fresh, {.release = release}, spot, bytes, memory);
    return {};
  }

  /// For runs of a plan in any streams of a GPU, which is current.
  status take_for_plan(const place& spot, std::size_t bytes, std::span<std::byte>& memory,
                       cuda::first_contents contents = cuda::first_contents::any) {
    memory = {};
    if (bytes == 0) return {};
    void* fresh = nullptr;
    if (status done = cuda::allocate_for_all(bytes, fresh, contents); !done) return done;
    const auto release = [](void*, device_id device, void* what, std::size_t, void*) noexcept {
      const cuda::current_device scope(device.ordinal);
      cuda::release_for_all(what);
    };
    hold(fresh, {.release = release}, spot, bytes, memory);
    return {};
  }

 private:
  void hold(void* fresh, const workspace_allocator& from, const place& spot, std::size_t bytes,
            std::span<std::byte>& memory) noexcept {
    from_ = from;
    device_ = spot.device;
    memory_ = fresh;
    bytes_ = bytes;
    stream_ = spot.stream;
    memory = {static_cast<std::byte*>(fresh), bytes};
  }

  workspace_allocator from_{};
  device_id device_{};
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  void* stream_ = nullptr;
};

}  // namespace impl

namespace {

/// Memory of a call on the CPU: the caller's, that of its allocator, or the calling thread's.
status find_workspace(const context& where, const impl::place& spot, std::size_t needed,
                      impl::owned_memory& owned, std::span<std::byte>& memory) {
  if (where.allocator != nullptr && where.workspace.empty()) [[unlikely]]
    return owned.take(*where.allocator, spot, needed, memory);
  return prim::find_workspace<impl::calling_thread>(where.workspace, needed, memory);
}

}  // namespace

}  // namespace tessera
