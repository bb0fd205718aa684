// grouped_matmul with its gradients: one call, or plan once and run.
#pragma once

#include <tessera/api/grouped_matmul.hpp>
