// grouped_matmul and matmul with their gradients: one call, or plan once and run.
#pragma once

#include <tessera/api/grouped_matmul.hpp>
