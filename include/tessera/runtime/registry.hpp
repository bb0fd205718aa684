// The rows of this build, family by family. Generated units define the functions; the runtime and
// the tools only read what they return.
#pragma once

#include <tessera/runtime/families.hpp>
