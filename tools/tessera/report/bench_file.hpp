// Reads what a bench program writes with --benchmark_out: Google Benchmark's JSON, with this
// machine's ceilings in `context` and our counters in every case.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "model.hpp"

namespace tessera::tool::report {

/// True if the document has the two members of a bench record.
bool is_bench_record(const boost::json::object& document);

/// The run in a document. Refuses fields of another kind, rates that contradict each other, and
/// names file, case, field and value. `notes` gets what is odd but can be shown.
bench_run read_bench_run(const boost::json::object& document, const std::string& path,
                         std::vector<std::string>& notes);

}  // namespace tessera::tool::report
