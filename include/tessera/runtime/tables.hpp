// The lookup tables that the choices of this process ask.
#pragma once

#include <memory>

#include <tessera/lookup/table.hpp>

namespace tessera {

/// The places of this process by its environment, read anew at each call.
table_locations process_table_locations();

/// The tables in force. The first call reads the files of process_table_locations(); later ones do
/// not touch a file. What is returned stays valid when other tables take its place.
std::shared_ptr<const lookup_tables> tables_in_force();

/// Puts tables in force and makes every thread forget its selections. Null: they are read again at
/// the next choice.
void use_tables(std::shared_ptr<const lookup_tables> tables);

/// Reads the files again. Choices that start afterwards see the new lines; plans keep their row.
void reload_tables();

}  // namespace tessera
