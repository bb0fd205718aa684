// The whole public interface of the compiled library. Includes no Boost, OpenMP or CUDA header.
#pragma once

#include <tessera/attention_backward.hpp>
#include <tessera/delta_rule.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention_backward/registry.hpp>
#include <tessera/families/delta_rule/registry.hpp>
#include <tessera/families/kv_cache/registry.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/flash_attention.hpp>
#include <tessera/kv_cache.hpp>
#include <tessera/mean_pooling.hpp>
#include <tessera/page_attention.hpp>
#include <tessera/ragged_decode_attention.hpp>
#include <tessera/ragged_page_attention.hpp>
#include <tessera/runtime/config_classes.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/lookup/table.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/runtime/record.hpp>
#include <tessera/rwkv7.hpp>
#include <tessera/unified_attention.hpp>
#include <tessera/version.hpp>
