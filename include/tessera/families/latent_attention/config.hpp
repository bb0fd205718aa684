// What a kernel of latent attention is, at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

/// What a kernel does with latents.
enum class latent_form : std::uint8_t {
  expanded,  ///< keys and values of each head are made from them first
  absorbed,  ///< they are the keys of all heads, their first columns the values
  selected,  ///< expanded ones, of which each token sees those of a list
};
inline constexpr std::array<std::string_view, 3> latent_form_names{"expanded", "absorbed",
                                                                   "selected"};
constexpr std::string_view name_of(latent_form form) noexcept {
  return latent_form_names[static_cast<std::size_t>(form)];
}

using latent_pass = kernel_pass;

/// The widest latents in pages that rows of a type take, and rope parts.
inline constexpr int widest_latent = 512, widest_rope = 64;
/// The widest keys made of latents that rows of a type take, rope included, and the columns of
/// values.
inline constexpr int widest_key = 192, dense_value = 128;

/// One row of the table. Kernels take every element type and size, but for those of a type, which
/// are for that one and multiply on the matrix unit.
struct latent_attention_config {
  backend target = backend::cpu_generic;
  latent_form form = latent_form::expanded;
  latent_pass pass = latent_pass::forward;
  dtype type = dtype::none;  ///< of the tensors; none: any
  friend constexpr bool operator==(const latent_attention_config&,
                                   const latent_attention_config&) = default;
};

/// The config with every default filled in.
constexpr latent_attention_config resolved(latent_attention_config config) noexcept {
  return config;
}

}  // namespace tessera
