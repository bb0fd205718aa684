// Reads what `tessera replay --json` prints.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "model.hpp"

namespace tessera::tool::report {

/// True if a document says that it is a replay.
bool is_replay(const boost::json::object& document);

/// Refusals name file, field and value.
replay_run read_replay(const boost::json::object& document, const std::string& path);

}  // namespace tessera::tool::report
