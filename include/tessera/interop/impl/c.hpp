// The C interface, compiled once: one unit of a program includes this file (the libraries
// tessera::c and tessera::c_shared are that unit).
#pragma once

#include <tessera/interop/impl/c_flash_attention.hpp>
#include <tessera/interop/impl/c_mean_pooling.hpp>
#include <tessera/interop/impl/c_plan.hpp>
