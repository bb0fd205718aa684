// Options of rwkv4.
#pragma once

namespace tessera {

/// There are none.
struct rwkv4_options {
  friend bool operator==(const rwkv4_options&, const rwkv4_options&) = default;
};

}  // namespace tessera
