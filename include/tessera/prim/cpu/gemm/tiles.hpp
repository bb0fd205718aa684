// The tile registers of AMX: eight of sixteen rows of 64 bytes. A tile of f32 has 16 x 16 numbers,
// one of words 16 x 16 pairs of bf16, or four bytes each; an operand B has row k of its words in
// row k, as panels do.
//
// The assembler's text is written here because compilers' intrinsics do not say which memory they
// touch. TESSERA_EMULATED_TILES names what stands in for the registers: with emulated_tiles, which
// are memory, the same bits come out on any processor, so rows are tested where there are none.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::prim {

/// What ldtilecfg reads. Behind it all registers are zeros.
struct alignas(64) tile_shapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t unused[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  /// Every register has its full size.
  static constexpr tile_shapes full() {
    tile_shapes shapes;
    for (int t = 0; t < 8; ++t) shapes.set(t, 16, 64);
    return shapes;
  }
  constexpr void set(int tile, int row_count, int bytes) {
    rows[tile] = static_cast<std::uint8_t>(row_count);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};

/// Numbers of f32, and words of bf16 pairs, in a row of a tile; rows of a tile.
inline constexpr int tile_width = 16;
inline constexpr int tile_rows = 16;

/// Registers in memory, of each thread its own.
class emulated_tiles {
 public:
  static void begin(const tile_shapes& shapes = tile_shapes::full()) {
    configured() = shapes;
    for (int tile = 0; tile < 8; ++tile) {
      std::memset(memory(tile), 0, sizeof(float) * tile_rows * tile_width);
    }
  }
  static void end() {}

  template <int Tile>
  static void zero() {
    std::memset(memory(Tile), 0, sizeof(float) * tile_rows * tile_width);
  }
  /// The rows of a tile, `stride` bytes apart.
  template <int Tile>
  static void load(const float* from, std::int64_t stride) {
    zero<Tile>();
    for (int r = 0; r < rows_of(Tile); ++r) {
      std::memcpy(memory(Tile) + r * tile_width, reinterpret_cast<const char*>(from) + r * stride,
                  row_bytes_of(Tile));
    }
  }
  template <int Tile>
  static void load_once(const float* from, std::int64_t stride) {
    load<Tile>(from, stride);
  }
  template <int Tile>
  static void store(float* to, std::int64_t stride) {
    for (int r = 0; r < rows_of(Tile); ++r) {
      std::memcpy(reinterpret_cast<char*>(to) + r * stride, memory(Tile) + r * tile_width,
                  row_bytes_of(Tile));
    }
  }
  /// C += A B as TDPBF16PS does it: low and high halves of the words are summed up by themselves,
  /// in the order of the words, from zero on, and the two sums are added before C is. Fused,
  /// rounded to the nearest, numbers too small to be normal are zeros.
  template <int C, int A, int B>
  static void multiply_add() {
    for (int r = 0; r < tile_rows; ++r) {
      float low[tile_width] = {}, high[tile_width] = {};
      for (int k = 0; k < tile_width; ++k) {
        const std::uint32_t a = word(A, r, k);
        const float a_low = half(a << 16), a_high = half(a & 0xffff0000u);
        for (int column = 0; column < tile_width; ++column) {
          const std::uint32_t b = word(B, k, column);
          low[column] = flushed(std::fma(a_low, half(b << 16), low[column]));
          high[column] = flushed(std::fma(a_high, half(b & 0xffff0000u), high[column]));
        }
      }
      float* const sums = memory(C) + r * tile_width;
      for (int column = 0; column < tile_width; ++column) {
        sums[column] = flushed(flushed(sums[column]) + flushed(low[column] + high[column]));
      }
    }
  }
  /// The same of words of four signed bytes (TDPBSSD): whole numbers of 32 bits, which wrap around.
  template <int C, int A, int B>
  static void multiply_add_bytes() {
    for (int r = 0; r < tile_rows; ++r) {
      std::uint32_t sums[tile_width];
      std::memcpy(sums, memory(C) + r * tile_width, sizeof sums);
      for (int k = 0; k < tile_width; ++k) {
        const std::uint32_t a = word(A, r, k);
        for (int column = 0; column < tile_width; ++column) {
          const std::uint32_t b = word(B, k, column);
          for (int at = 0; at < 32; at += 8) {
            sums[column] += static_cast<std::uint32_t>(static_cast<std::int8_t>(a >> at) *
                                                       static_cast<std::int8_t>(b >> at));
          }
        }
      }
      std::memcpy(memory(C) + r * tile_width, sums, sizeof sums);
    }
  }

 private:
  static float* memory(int tile) {
    alignas(64) static thread_local float registers[8][tile_rows * tile_width];
    return registers[tile];
  }
  /// Rows and columns behind those of a tile's shape are zeros, which products may meet.
  static tile_shapes& configured() {
    static thread_local tile_shapes shapes = tile_shapes::full();
    return shapes;
  }
  static int rows_of(int tile) { return configured().rows[tile]; }
  static std::size_t row_bytes_of(int tile) { return configured().row_bytes[tile]; }
  static std::uint32_t word(int tile, int row, int column) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, memory(tile) + row * tile_width + column, sizeof bits);
    return bits;
  }
  static float half(std::uint32_t bits) {
    float value = 0.0f;
    std::memcpy(&value, &bits, sizeof value);
    return flushed(value);
  }
  static float flushed(float x) {
    return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  }
};

/// The registers themselves. A thread may use them between begin() and end(), and only once the
/// operating system has given the process leave (device_facts::highest is then cpu_amx_bf16).
struct hardware_tiles {
  static TESSERA_INLINE void begin() {
    static constexpr tile_shapes shapes = tile_shapes::full();
    begin(shapes);
  }
  static TESSERA_INLINE void begin(const tile_shapes& shapes) {
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  /// The operating system need not keep registers in their first state.
  static TESSERA_INLINE void end() { asm volatile("tilerelease"); }

  template <int Tile>
  static TESSERA_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
  }
  /// The rows of a tile, `stride` bytes apart.
  template <int Tile>
  static TESSERA_INLINE void load(const float* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  /// The same of what need not stay in the first-level cache.
  template <int Tile>
  static TESSERA_INLINE void load_once(const float* from, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile>
  static TESSERA_INLINE void store(float* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  /// C += A B.
  template <int C, int A, int B>
  static TESSERA_INLINE void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
  /// The same of words of four signed bytes, in whole numbers.
  template <int C, int A, int B>
  static TESSERA_INLINE void multiply_add_bytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

#if defined(TESSERA_EMULATED_TILES)
using tiles = TESSERA_EMULATED_TILES;
#else
using tiles = hardware_tiles;
#endif

/// Registers whose products are of bytes.
template <class Tiles>
struct tiles_of_bytes : Tiles {
  template <int C, int A, int B>
  static TESSERA_INLINE void multiply_add() {
    Tiles::template multiply_add_bytes<C, A, B>();
  }
};

/// What kernels that use no tile registers have in their place.
struct no_tiles {
  static void begin() {}
  static void end() {}
};

/// The tile registers are this thread's as long as it lives.
template <class Tiles>
struct tile_scope {
  tile_scope() { Tiles::begin(); }
  explicit tile_scope(const tile_shapes& shapes) { Tiles::begin(shapes); }
  ~tile_scope() { Tiles::end(); }
  tile_scope(const tile_scope&) = delete;
  tile_scope& operator=(const tile_scope&) = delete;
};

/// Products of 16 * RowTiles rows of A with 16 * ColumnTiles columns of B, one or two each: sums in
/// the first tiles, A and B in one each behind them. Strides count words (or floats).
///
/// Processors rename tiles and have few to spare: with all eight in use a load waits for products
/// before it, also if nobody uses some of the eight. A tile of zeros takes none. So four products
/// take six tiles and five loads, and blocks of two products, with four tiles, are the fastest.
///
/// A store waits for the products of its tile. So the sums of one block of C are stored among the
/// first products of the next (`begin`), each just before its tile is needed again, and only the
/// last ones by themselves (`finish`).
///
/// `BStays`: B is read again soon and A is not, rather than A.
template <class Tiles, int RowTiles, int ColumnTiles, bool BStays = false>
class tile_product {
 public:
  /// Where a block of C is, or null.
  struct block {
    float* c = nullptr;
    std::int64_t stride = 0;
  };
  /// Rows of A are a_stride apart, words of B b_stride; from tile_width words of A on the next ones
  /// are a_step behind.
  struct operands {
    const float* a;
    std::int64_t a_stride;
    const float* b;
    std::int64_t b_stride;
    std::int64_t a_step = tile_width;
  };

  /// The products over the first tile_width words, after which come `add` and another `begin` or
  /// `finish`. Sums start from what C holds if `Adds`, else from zero. Stores those of `before`
  /// first.
  template <bool Adds>
  TESSERA_INLINE void begin(const operands& from, float* c, std::int64_t c_stride) {
    begin<Adds>(from, {c, c_stride}, {c, c_stride});
  }
  /// The same where sums start from what `start` holds.
  template <bool Adds>
  TESSERA_INLINE void begin(const operands& from, const block& start, const block& to) {
    begin<Adds>(from, start, to, [] {});
  }
  /// The same; `each()` goes on beside each product.
  template <bool Adds, class Each>
  TESSERA_INLINE void begin(const operands& from, const block& start, const block& to,
                            const Each& each) {
    const block before = stored_;
    stored_ = to;
    step(
        from, [&]<int Row, int Column>() __attribute__((always_inline)) {
          each();
          constexpr int tile = sums<Row, Column>;
          if (before.c != nullptr)
            Tiles::template store<tile>(at<Row, Column>(before), bytes(before));
          if constexpr (Adds) {
            Tiles::template load<tile>(at<Row, Column>(start), bytes(start));
          } else {
            Tiles::template zero<tile>();
          }
        });
  }
  /// Those over further `words`, a multiple of tile_width.
  static TESSERA_INLINE void add(const operands& from, int words) {
    add(from, words, [] {});
  }
  /// The same; `beside()` goes on beside the products of each tile_width words.
  template <class Beside>
  static TESSERA_INLINE void add(operands from, int words, const Beside& beside) {
    for (int k = 0; k < words; k += tile_width) {
      step(from, []<int Row, int Column>() {});
      beside();
      from = next(from);
    }
  }
  /// The same; `each()` goes on beside each product.
  template <class Each>
  static TESSERA_INLINE void add_each(operands from, int words, const Each& each) {
    for (int k = 0; k < words; k += tile_width) {
      step(
          from, [&]<int Row, int Column>() __attribute__((always_inline)) { each(); });
      from = next(from);
    }
  }
  static TESSERA_INLINE operands next(const operands& from) {
    return {from.a + from.a_step, from.a_stride, from.b + tile_width * from.b_stride, from.b_stride,
            from.a_step};
  }
  /// Where sums may have been stored already.
  TESSERA_INLINE void finish_any() {
    if (stored_.c != nullptr) finish();
  }
  TESSERA_INLINE void finish() {
    store<0, 0>();
    if constexpr (ColumnTiles == 2) store<0, 1>();
    if constexpr (RowTiles == 2) store<1, 0>();
    if constexpr (RowTiles == 2 && ColumnTiles == 2) store<1, 1>();
    stored_ = {};
  }

 private:
  static constexpr std::int64_t word_bytes = 4;

  template <int Row, int Column>
  static TESSERA_INLINE float* at(const block& one) {
    return one.c + Row * tile_rows * one.stride + Column * tile_width;
  }
  static TESSERA_INLINE std::int64_t bytes(const block& one) { return one.stride * word_bytes; }
  template <int Row, int Column>
  static constexpr int sums = ColumnTiles* Row + Column;
  static constexpr int operand_a = RowTiles * ColumnTiles, operand_b = operand_a + 1;

  template <int Row, int Column>
  TESSERA_INLINE void store() {
    Tiles::template store<sums<Row, Column>>(at<Row, Column>(stored_), bytes(stored_));
  }
  template <int Tile, bool Once>
  static TESSERA_INLINE void load(const float* from, std::int64_t stride) {
    if constexpr (Once) {
      Tiles::template load_once<Tile>(from, stride);
    } else {
      Tiles::template load<Tile>(from, stride);
    }
  }
  /// `before.operator()<Row, Column>()` comes just before the sums of that tile grow.
  template <class Before>
  static TESSERA_INLINE void step(const operands& from, const Before& before) {
    const std::int64_t a_bytes = from.a_stride * word_bytes, b_bytes = from.b_stride * word_bytes;
    const auto multiply = [&]<int Row, int Column>() __attribute__((always_inline)) {
      before.template operator()<Row, Column>();
      Tiles::template multiply_add<sums<Row, Column>, operand_a, operand_b>();
    };
    const auto load_a = [&](int row) {
      load<operand_a, BStays>(from.a + row * tile_rows * from.a_stride, a_bytes);
    };
    const auto load_b = [&](int column) {
      load<operand_b, !BStays>(from.b + column * tile_width, b_bytes);
    };
    load_a(0);
    load_b(0);
    multiply.template operator()<0, 0>();
    if constexpr (RowTiles == 2 && ColumnTiles == 2) {
      // Around the block: what stays in the caches comes back for the last product.
      if constexpr (BStays) {
        load_b(1);
        multiply.template operator()<0, 1>();
        load_a(1);
        multiply.template operator()<1, 1>();
        load_b(0);
        multiply.template operator()<1, 0>();
      } else {
        load_a(1);
        multiply.template operator()<1, 0>();
        load_b(1);
        multiply.template operator()<1, 1>();
        load_a(0);
        multiply.template operator()<0, 1>();
      }
    } else if constexpr (RowTiles == 2) {
      load_a(1);
      multiply.template operator()<1, 0>();
    } else if constexpr (ColumnTiles == 2) {
      load_b(1);
      multiply.template operator()<0, 1>();
    }
  }

  block stored_{};  ///< whose sums are in the tiles
};

}  // namespace tessera::prim
