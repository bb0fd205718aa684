// Words and operations of every family: the one place in this room that names them.
#pragma once

#include <tessera/runtime/families.hpp>
#include <tessera/runtime/impl/attention.hpp>
#include <tessera/runtime/impl/attention_operation.hpp>
#include <tessera/runtime/impl/mean_pooling.hpp>
#include <tessera/runtime/impl/mean_pooling_operation.hpp>
