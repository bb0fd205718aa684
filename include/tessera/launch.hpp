// Header paths of the families that have one: kernels without a table, a registry or a link step.
#pragma once

#include <tessera/kernels/attention/cpu/direct.hpp>
#include <tessera/kernels/attention_backward/cpu/direct.hpp>
#include <tessera/kernels/chunked_scan/cpu/direct.hpp>
#include <tessera/kernels/delta_rule/cpu/direct.hpp>
#include <tessera/kernels/grouped_matmul/cpu/direct.hpp>
#include <tessera/kernels/kv_cache/cpu/direct.hpp>
#include <tessera/kernels/mean_pooling/cpu/direct.hpp>
#include <tessera/kernels/quantized/cpu/direct.hpp>
#include <tessera/kernels/sparse_attention/cpu/direct.hpp>
