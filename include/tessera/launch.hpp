// Header path of every family: kernels without a table, a registry or a link step.
#pragma once

#include <tessera/kernels/flash_attention/direct.hpp>
#include <tessera/kernels/mean_pooling/direct.hpp>
