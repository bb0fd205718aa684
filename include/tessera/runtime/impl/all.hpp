// Host code that exists once. Included by exactly one generated unit of the library.
#pragma once

#include <tessera/runtime/impl/announce.hpp>
#include <tessera/runtime/impl/device_facts.hpp>
#include <tessera/runtime/impl/environment.hpp>
#include <tessera/runtime/impl/events.hpp>
#include <tessera/runtime/impl/explain.hpp>
#include <tessera/runtime/impl/flash_attention.hpp>
#include <tessera/runtime/impl/flash_fwd.hpp>
#include <tessera/runtime/impl/flash_plan.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/runtime/impl/workspace.hpp>
