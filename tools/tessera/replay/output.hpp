// What a replay prints: tables for people, one document for programs.
#pragma once

#include <boost/json/object.hpp>

#include "../model_description.hpp"
#include "session.hpp"

namespace tessera::tool {

/// Prints tables and the sentences under them.
void print_replay(const replay_session& done, const model_description& model);

/// Everything, step by step. `tessera report` reads it.
boost::json::object document_of(const replay_session& done, const model_description& model);

}  // namespace tessera::tool
