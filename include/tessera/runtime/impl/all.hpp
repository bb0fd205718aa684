// Host code that exists once. Included by exactly one generated unit of the library.
#pragma once

#include <tessera/lookup/impl/files.hpp>
#include <tessera/lookup/impl/record.hpp>
#include <tessera/lookup/impl/table.hpp>
#include <tessera/runtime/impl/announce.hpp>
#include <tessera/runtime/impl/device_facts.hpp>
#include <tessera/runtime/impl/device_memory.hpp>
#include <tessera/runtime/impl/environment.hpp>
#include <tessera/runtime/impl/key.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/place.hpp>
#include <tessera/runtime/impl/plan.hpp>
#include <tessera/runtime/impl/process.hpp>
#include <tessera/runtime/impl/record.hpp>
#if !defined(TESSERA_CUDA)
#include <tessera/runtime/impl/cuda/absent.hpp>
#endif
