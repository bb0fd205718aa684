// The lookup tables in force.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/lookup/locations.hpp>
#include <tessera/runtime/tables.hpp>

namespace tessera {

namespace {

constinit std::mutex tables_guard;

/// Made at first use: a shared pointer of the process would have to be destroyed at its end, while
/// other threads may still choose.
std::shared_ptr<const lookup_tables>& tables_of_process() {
  static auto* const tables = new std::shared_ptr<const lookup_tables>();
  return *tables;
}

}  // namespace

std::shared_ptr<const lookup_tables> tables_in_force() {
  const std::lock_guard lock(tables_guard);
  std::shared_ptr<const lookup_tables>& tables = tables_of_process();
  if (tables == nullptr) tables = load_lookup_tables(process_table_locations());
  return tables;
}

void use_tables(std::shared_ptr<const lookup_tables> tables) {
  std::shared_ptr<const lookup_tables> before;  // destroyed outside the lock
  {
    const std::lock_guard lock(tables_guard);
    before = std::exchange(tables_of_process(), std::move(tables));
  }
  forget_selections();
}

void reload_tables() {
  use_tables(load_lookup_tables(process_table_locations()));
}

}  // namespace tessera
