// flash_mla, deepseek_attn and their gradients, flash_mla_decode and
// multi_latent_ragged_page_attention: one call, or plan once and run.
#pragma once

#include <tessera/api/latent_attention.hpp>
