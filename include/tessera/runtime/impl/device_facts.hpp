// Finding out what the devices are. The processor: CPUID and system calls, and Linux's lists of the
// memory nodes, the only files that are read.
// A processor with AMX: the process asks for its tile registers here, before any kernel runs.
// GPUs: facts found out once.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <tessera/prim/common/processor_model.hpp>
#include <tessera/prim/common/processors.hpp>
#include <tessera/prim/common/tile_access.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/processor_model.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/words.hpp>

#if defined(__linux__)
#include <unistd.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera {

namespace {

#if defined(__x86_64__)

struct cpuid_words {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

/// Zeros for leaves that the processor does not have.
cpuid_words cpuid(unsigned leaf, unsigned subleaf = 0) noexcept {
  cpuid_words words;
  if (__get_cpuid_count(leaf, subleaf, &words.a, &words.b, &words.c, &words.d) == 0) return {};
  return words;
}

constexpr bool bit(unsigned word, int index) noexcept {
  return (word >> index & 1u) != 0;
}

backend highest_backend() noexcept {
  const cpuid_words basic = cpuid(1);
  const cpuid_words extended = cpuid(7);
  constexpr std::uint64_t ymm = 0x06;  // SSE and AVX state
  constexpr std::uint64_t zmm = 0xE6;  // and opmask, upper halves, upper registers
  const std::uint64_t states = prim::saved_register_states<void>();
  const bool avx2 = (states & ymm) == ymm && bit(basic.c, 28) && bit(basic.c, 12) &&
                    bit(basic.c, 29) && bit(extended.b, 5);  // AVX, FMA, F16C, AVX2
  const bool avx512 = avx2 && (states & zmm) == zmm && bit(extended.b, 16) && bit(extended.b, 17) &&
                      bit(extended.b, 30) && bit(extended.b, 31);  // F, DQ, BW, VL
  const bool vnni = avx512 && bit(extended.c, 11);
  if (vnni && bit(cpuid(7, 1).a, 5)) return backend::cpu_avx512_bf16;
  if (vnni) return backend::cpu_avx512_vnni;
  if (avx512) return backend::cpu_avx512;
  return avx2 ? backend::cpu_avx2 : backend::cpu_generic;
}

/// Data and unified caches; the deterministic cache leaf of Intel and its AMD twin read alike.
void find_caches(device_facts& facts) noexcept {
  const cpuid_words vendor = cpuid(0);
  const bool amd = vendor.c == 0x444D4163 || vendor.c == 0x656E6975;  // "cAMD", "uine" (Hygon)
  for (unsigned index = 0; index < 16; ++index) {
    const cpuid_words cache = cpuid(amd ? 0x8000001D : 4, index);
    const unsigned kind = cache.a & 0x1F;  // 1: data, 3: unified
    if (kind == 0) break;
    if (kind == 2) continue;
    const std::int64_t ways = (cache.b >> 22) + 1;
    const std::int64_t partitions = (cache.b >> 12 & 0x3FF) + 1;
    const std::int64_t line = (cache.b & 0xFFF) + 1;
    const std::int64_t bytes = ways * partitions * line * (std::int64_t{cache.c} + 1);
    switch (cache.a >> 5 & 7) {
      case 1:
        facts.l1d_bytes = bytes;
        break;
      case 2:
        facts.l2_bytes = bytes;
        break;
      case 3:
        facts.l3_bytes = bytes;
        facts.l3_threads = static_cast<int>((cache.a >> 14 & 0xFFF) + 1);
        break;
      default:
        break;
    }
  }
}

void find_product(device_facts& facts) noexcept {
  std::array<char, 49> text{};
  for (unsigned part = 0; part < 3; ++part) {
    const cpuid_words words = cpuid(0x80000002 + part);
    std::memcpy(text.data() + 16 * part, &words, sizeof words);
  }
  const char* begin = text.data();
  while (*begin == ' ') ++begin;
  std::size_t length = std::strlen(begin);
  while (length > 0 && begin[length - 1] == ' ') --length;
  std::memcpy(facts.product.data(), begin, std::min(length, facts.product.size() - 1));
}

/// Threads per core and per package, from the topology leaf.
void find_cores(device_facts& facts) noexcept {
  const int per_core = std::max(1, static_cast<int>(cpuid(0xB, 0).b & 0xFFFF));
  const int per_package = std::max(per_core, static_cast<int>(cpuid(0xB, 1).b & 0xFFFF));
  facts.physical_cores = std::max(1, facts.hardware_threads / per_core);
  facts.sockets = std::max(1, (facts.hardware_threads + per_package - 1) / per_package);
}

void find_bf16_rate(device_facts& facts) noexcept {
  if (!has_bf16_products(facts.highest)) return;
  facts.bf16_dot_percent = impl::bf16_dot_percent_of(prim::this_processor<void>());
}

#endif

void find_threads(device_facts& facts) noexcept {
  const auto concurrency = static_cast<int>(std::thread::hardware_concurrency());
  facts.hardware_threads = facts.available_threads = std::max(1, concurrency);
#if defined(__linux__)
  facts.hardware_threads = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
#endif
  if (const int allowed = prim::processors_of_process<void>().count(); allowed > 0) {
    facts.available_threads = allowed;
  }
  facts.memory_nodes = prim::nodes_of_process<void>().count;
  facts.physical_cores = facts.hardware_threads;
}

}  // namespace

device_facts detect_device() noexcept {
  device_facts facts;
  find_threads(facts);
#if defined(__x86_64__)
  facts.highest = highest_backend();
  if (facts.highest == backend::cpu_avx512_bf16) {
    facts.tiles = prim::find_tile_access<void>();
  }
  if (facts.tiles == tile_access::granted) facts.highest = backend::cpu_amx_bf16;
  find_cores(facts);
  find_caches(facts);
  find_bf16_rate(facts);
  find_product(facts);
#endif
  return facts;
}

const device_facts& this_device() noexcept {
  static const device_facts once = [] {
    device_facts facts = detect_device();
    facts.highest = std::min(facts.highest, process_environment().cpu.value_or(facts.highest));
    return facts;
  }();
  return once;
}

namespace {

/// The number of devices, or why nobody can tell; asked again after a failure, since a driver may
/// be loaded later.
status counted_devices(int& count) {
  static constinit std::atomic<int> known{-1};
  count = known.load(std::memory_order_relaxed);
  if (count >= 0) return {};
  status done = impl::cuda::count_devices(count);
  if (done) known.store(count, std::memory_order_relaxed);
  return done;
}

constexpr int most_known_devices = 64;

[[gnu::cold]] status no_such_device(int ordinal, int count) {
  return refusal(status_code::device, {"cuda:", ordinal, ": this process sees ", count,
                                       " CUDA device", count == 1 ? "" : "s"});
}

/// Facts of the CUDA devices asked for so far. They stay: choices and plans point to them.
class known_devices {
 public:
  result<const device_facts*> find(int ordinal) {
    if (ordinal >= 0 && ordinal < most_known_devices) {
      const auto at = static_cast<std::size_t>(ordinal);
      if (const device_facts* known = facts_[at].load(std::memory_order_acquire)) return known;
    }
    return find_anew(ordinal);
  }

 private:
  [[gnu::cold]] result<const device_facts*> find_anew(int ordinal) {
    int count = 0;
    if (status done = counted_devices(count); !done) {
      return refusal(done.code(), {"cuda:", ordinal, ": ", done.message()});
    }
    if (ordinal < 0 || ordinal >= std::min(count, most_known_devices)) {
      return no_such_device(ordinal, count);
    }
    const std::lock_guard lock(guard_);
    auto& slot = facts_[static_cast<std::size_t>(ordinal)];
    if (const device_facts* known = slot.load(std::memory_order_acquire)) return known;
    auto found = std::make_unique<device_facts>();
    if (status done = impl::cuda::read_facts(ordinal, *found); !done) {
      return refusal(done.code(), {"cuda:", ordinal, ": ", done.message()});
    }
    slot.store(found.get(), std::memory_order_release);
    return static_cast<const device_facts*>(found.release());
  }

  std::mutex guard_;
  std::array<std::atomic<const device_facts*>, most_known_devices> facts_{};
};

}  // namespace

int cuda_device_count() noexcept {
  int count = 0;
  return counted_devices(count) ? count : 0;
}

result<const device_facts*> find_device(device_id device) {
  static constinit known_devices gpus;
  if (device == device_id{}) return &this_device();
  if (device.kind == device_kind::cuda) return gpus.find(device.ordinal);
  return refusal(status_code::device,
                 {"device: is ", device, ", must be cpu:0 or cuda: and a number from 0"});
}

std::string text_of(device_id device) {
  return sentence({device});
}

std::optional<device_id> device_named(std::string_view name) noexcept {
  const bool has_number = name.find(':') != std::string_view::npos;
  const std::string_view kind = text::split_off(name, ':');
  device_id device;
  if (kind == "cuda") device.kind = device_kind::cuda;
  if (kind != "cuda" && kind != "cpu") return std::nullopt;
  if (has_number && !text::read_number(name, device.ordinal)) return std::nullopt;
  const bool is_there = kind == "cuda" ? device.ordinal >= 0 : device.ordinal == 0;
  return is_there ? std::optional(device) : std::nullopt;
}

}  // namespace tessera
