// What rows of AMX take for tile registers in the program of these tests: memory, or the
// processor's own while a test says so, so that one build of a row runs both ways. Included before
// all else.
#pragma once

namespace tessera::prim {
struct either_tiles;
}  // namespace tessera::prim

#include <cstdint>

#include <tessera/prim/cpu/gemm/tiles.hpp>

namespace tessera::prim {

struct either_tiles {
  /// Of all threads. Changes between calls only.
  static bool& are_hardware() {
    static bool yes = false;
    return yes;
  }

  static void begin(const tile_shapes& shapes = tile_shapes::full()) {
    are_hardware() ? hardware_tiles::begin(shapes) : emulated_tiles::begin(shapes);
  }
  static void end() { are_hardware() ? hardware_tiles::end() : emulated_tiles::end(); }

  template <int Tile>
  static void zero() {
    are_hardware() ? hardware_tiles::zero<Tile>() : emulated_tiles::zero<Tile>();
  }
  template <int Tile>
  static void load(const float* from, std::int64_t stride) {
    are_hardware() ? hardware_tiles::load<Tile>(from, stride)
                   : emulated_tiles::load<Tile>(from, stride);
  }
  template <int Tile>
  static void load_once(const float* from, std::int64_t stride) {
    are_hardware() ? hardware_tiles::load_once<Tile>(from, stride)
                   : emulated_tiles::load_once<Tile>(from, stride);
  }
  template <int Tile>
  static void store(float* to, std::int64_t stride) {
    are_hardware() ? hardware_tiles::store<Tile>(to, stride)
                   : emulated_tiles::store<Tile>(to, stride);
  }
  template <int C, int A, int B>
  static void multiply_add() {
    are_hardware() ? hardware_tiles::multiply_add<C, A, B>()
                   : emulated_tiles::multiply_add<C, A, B>();
  }
  template <int C, int A, int B>
  static void multiply_add_bytes() {
    are_hardware() ? hardware_tiles::multiply_add_bytes<C, A, B>()
                   : emulated_tiles::multiply_add_bytes<C, A, B>();
  }
};

}  // namespace tessera::prim
