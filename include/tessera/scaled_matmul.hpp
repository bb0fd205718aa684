// scaled_grouped_matmul and scaled_matmul: one call, or plan once and run.
#pragma once

#include <tessera/api/scaled_matmul.hpp>
