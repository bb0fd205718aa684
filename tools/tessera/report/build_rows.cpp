#include <boost/json/object.hpp>

#include "../families.hpp"
#include "load.hpp"

namespace tessera::tool::report {

void add_build_rows(input& to) {
  for (const family* family : all_families()) {
    for (const listed_row& listed : family->rows()) {
      known_row& row = to.rows[std::string(listed.name)];
      row.name = listed.name;
      row.family = family->name();
      row.built = true;
      for (const boost::json::key_value_pair& member : listed.config) {
        row.config.emplace_back(std::string(std::string_view(member.key())),
                                text_of(member.value()));
      }
      // A cost file is newer than the figures that were compiled in.
      if (!row.cost.seconds && listed.compile_seconds > 0)
        row.cost.seconds = listed.compile_seconds;
      if (!row.cost.bytes && listed.bytes > 0) row.cost.bytes = static_cast<double>(listed.bytes);
      if (!row.cost.registers && listed.resources.registers > 0) {
        row.cost.registers = listed.resources.registers;
        row.cost.local_bytes = listed.resources.local_bytes;
      }
    }
  }
}

}  // namespace tessera::tool::report
