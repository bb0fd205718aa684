// The whole public interface of the compiled library. Includes no Boost, OpenMP or CUDA header.
#pragma once

#include <tessera/flash_attention.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/registry.hpp>
#include <tessera/version.hpp>
