// Gradients of flash_attention, attention and scaled_dot_product_attention: one call, or plan once
// and run.
#pragma once

#include <tessera/api/attention_backward.hpp>
