// The whole page: one file, nothing outside it is needed to show it.
#pragma once

#include <string>

#include "model.hpp"
#include "sections.hpp"

namespace tessera::tool::report {

/// The HTML of the page. The same input gives the same page.
std::string page_of(const input& from, const page_facts& facts);

}  // namespace tessera::tool::report
