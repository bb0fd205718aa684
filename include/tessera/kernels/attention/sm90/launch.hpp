// Entry points of the wgmma kernels (compute capability 9.0, compiled for sm_90a) for all rows.
// Units whose rows have their keys side by side compile faster with launch_rows.hpp, which says how
// a row is launched.
#pragma once

#include <tessera/kernels/attention/sm90/launch_listed.hpp>
#include <tessera/kernels/attention/sm90/launch_rows.hpp>
