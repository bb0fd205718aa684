// Every call of the CUDA runtime that the host code makes. Included by one generated unit of builds
// with CUDA.
#pragma once

#include <tessera/runtime/impl/cuda/devices.hpp>
#include <tessera/runtime/impl/cuda/memory.hpp>
#include <tessera/runtime/impl/cuda/streams.hpp>
