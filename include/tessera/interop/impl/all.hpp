// Everything of interop that is compiled once, Boost.JSON included: one unit of a program includes
// this file (the target `tessera::interop` is that unit), and none includes boost/json/src.hpp.
#pragma once

#include <boost/json/src.hpp>

#include <tessera/interop/impl/safetensors_header.hpp>
#include <tessera/interop/impl/safetensors_read.hpp>
#include <tessera/interop/impl/safetensors_write.hpp>
