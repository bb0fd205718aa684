// Every operation of the family of latent attention, whatever its tensors.
#pragma once

#include <tessera/families/latent_attention/deepseek_attn_declaration.hpp>
#include <tessera/families/latent_attention/flash_mla_declaration.hpp>
#include <tessera/families/latent_attention/latent_decode_declaration.hpp>
#include <tessera/families/latent_attention/latent_ragged_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto latent_attention_operations =
    declared::joined(flash_mla_table::operations, latent_decode_table::operations,
                     latent_ragged_table::operations, deepseek_attn_table::operations);

}  // namespace tessera
