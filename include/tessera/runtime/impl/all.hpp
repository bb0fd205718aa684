// Host code that exists once. Included by exactly one generated unit of the library.
#pragma once

#include <tessera/runtime/impl/announce.hpp>
#include <tessera/runtime/impl/config_classes.hpp>
#include <tessera/runtime/impl/device_facts.hpp>
#include <tessera/runtime/impl/device_memory.hpp>
#include <tessera/runtime/impl/devices.hpp>
#include <tessera/runtime/impl/environment.hpp>
#include <tessera/runtime/impl/event_lines.hpp>
#include <tessera/runtime/impl/events.hpp>
#include <tessera/runtime/impl/explain.hpp>
#include <tessera/runtime/impl/key.hpp>
#include <tessera/runtime/impl/lookup_load.hpp>
#include <tessera/runtime/impl/lookup_locations.hpp>
#include <tessera/runtime/impl/lookup_record.hpp>
#include <tessera/runtime/impl/lookup_table.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/overlay.hpp>
#include <tessera/runtime/impl/plan.hpp>
#include <tessera/runtime/impl/profiling.hpp>
#include <tessera/runtime/impl/record.hpp>
#include <tessera/runtime/impl/scopes.hpp>
#include <tessera/runtime/impl/tables.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/runtime/impl/workspace.hpp>
#if !defined(TESSERA_CUDA)
#include <tessera/runtime/impl/cuda/absent.hpp>
#endif
