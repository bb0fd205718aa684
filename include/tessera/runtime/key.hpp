// Keys of lookup tables as text. A key has four parts: the family, the class of the device, the
// identity (compared exactly) and the size (whole numbers that stand for a bucket). The texts are
// canonical: one space between `name=value` pairs, in the family's order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/runtime/short_text.hpp>

namespace tessera {

inline constexpr std::size_t max_key_text = 256;
using key_line = short_text<max_key_text>;

/// The part of a key that belongs to the problem.
struct key_text {
  key_line identity;
  key_line size;
};

using device_class_text = short_text<96>;

/// What makes timings comparable: "cpu_avx512_bf16.l1d=32K.l2=1M.cores=8". The cores of the
/// machine count up to the next power of two; caches are those of one core. Of a GPU:
/// "cuda_cc90.sms=132.l2=60M.shared=227K.memory=4800G", its bandwidth rounded to 100 GB/s.
device_class_text device_class_of(const device_facts& device) noexcept;

/// The smallest power of two that is at least `size`; 0 for sizes below 1.
constexpr std::int64_t bucket_top(std::int64_t size) noexcept {
  constexpr std::int64_t largest = std::int64_t{1} << 62;
  if (size < 1) return 0;
  if (size > largest) return largest;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

/// How a field of a problem enters the key. Families classify every field of their problem, or do
/// not compile (see field_class).
enum class key_class : std::uint8_t {
  identity,           ///< another value is another line of the table
  size,               ///< rounded to a bucket
  identity_and_size,  ///< shapes: dtype and head dim are identity, lengths are sizes
  ignored,            ///< no choice may depend on it: scales, seeds
};

constexpr std::string_view name_of(key_class group) noexcept {
  switch (group) {
    case key_class::identity:
      return "identity";
    case key_class::size:
      return "size";
    case key_class::identity_and_size:
      return "identity_and_size";
    case key_class::ignored:
      return "ignored";
  }
  return "invalid";
}

/// One field of a problem with its class.
struct field_class {
  std::string_view field;
  key_class group = key_class::identity;
};

/// The key of a demand. On CPUs the number of threads is a size; a promise that the policy asks for
/// is part of the identity.
template <class Family>
key_text key_text_of(const typename Family::demand_type& demand, int threads, device_kind kind,
                     bits_promise promise = bits_promise::none) noexcept {
  const typename Family::key_type key = Family::key_of(demand);
  key_text text;
  text.identity.append_with(
      [&](char* to, std::size_t room) { return Family::identity_text(key, to, room); });
  if (promise == bits_promise::deterministic) text.identity += " deterministic=true";
  if (promise == bits_promise::batch_invariant) text.identity += " batch_invariant=true";
  text.size.append_with(
      [&](char* to, std::size_t room) { return Family::size_text(key, to, room); });
  if (kind == device_kind::cpu) (text.size += " threads=").append(bucket_top(threads));
  return text;
}

}  // namespace tessera
