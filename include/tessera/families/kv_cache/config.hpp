// What a kernel of caches of keys and values is, at compile time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>

namespace tessera {

/// What a kernel does to a cache.
enum class kv_cache_pass : std::uint8_t {
  append,  ///< new keys and values go to slots of pages
  copy,    ///< pages go onto other pages
};

inline constexpr std::array<std::string_view, 2> kv_cache_pass_names{"append", "copy"};
constexpr std::string_view name_of(kv_cache_pass pass) noexcept {
  return kv_cache_pass_names[static_cast<std::size_t>(pass)];
}

/// One row of the table. Kernels take every element type.
struct kv_cache_config {
  backend target = backend::cpu_generic;
  kv_cache_pass pass = kv_cache_pass::append;
  friend constexpr bool operator==(const kv_cache_config&, const kv_cache_config&) = default;
};

/// The config with every default filled in.
constexpr kv_cache_config resolved(kv_cache_config config) noexcept {
  return config;
}

}  // namespace tessera
