// The microkernel: mr x nr accumulators in registers take an outer product per word of the summed
// axis.
//
//   C[row, column] (+)= sum_k A[row, k] * B[k, column]
//
// A is row-major and broadcast from memory, B is a packed panel (panels.hpp). With mr = 14 and nr =
// 2 registers the tile fills the 32 zmm registers (28 + 2 of B + 1 of A), and 28 multiply-adds
// share 2 + 14 loads.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::prim {

/// No bound on the words of a running sum.
inline constexpr int any_length = 1 << 30;

/// Words of a running sum if `words` are cut evenly into as few as have at most `longest`.
constexpr int even_chain(int words, int longest) {
  const int chains = words / longest + (words % longest != 0);
  return chains < 2 ? longest : (words + chains - 1) / chains;
}

/// What goes on beside a product is called before each `words_beside` words of it: requests for
/// lines, a few at a time. In one burst between two products they would hold up the loads of the
/// next.
struct nothing_beside {
  TESSERA_INLINE void operator()() const {}
};
inline constexpr int words_beside = 16;

/// Calls of what goes on beside a product of so many words, at least.
constexpr int steps_beside(int words, int chain) {
  int steps = 0;
  for (; words > 1; words -= chain) {
    steps += ((words < chain ? words : chain) - 1 + words_beside - 1) / words_beside;
  }
  return steps;
}

/// mr = Rows, nr = Vectors * width accumulators. `Words` says what a word of A and B holds.
template <class Isa, class Words, int Rows, int Vectors>
struct microkernel {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int mr = Rows;
  static constexpr int nr = Vectors * vec::width;
  /// Rows whose words a multiply-add broadcasts as it reads them: one instruction less, and for two
  /// columns one read more. Two thirds keep reads below multiply-adds, and leave a core that
  /// another thread shares few enough instructions.
  static constexpr int rows_from_memory =
      Words::broadcasts_from_memory && Vectors == 2 ? Rows * 2 / 3 : 0;

  /// C = A B of at least one word, with at most `chain` in a running sum. Strides count words; rows
  /// of a panel of B may be longer than the tile is wide.
  template <int AStride, int BStride = nr, class Beside = nothing_beside>
  static TESSERA_INLINE void multiply(const float* TESSERA_RESTRICT a,
                                      const float* TESSERA_RESTRICT b, int words, int chain,
                                      float* TESSERA_RESTRICT c, std::int64_t c_stride,
                                      const Beside& beside = {}) {
    const int first = words < chain ? words : chain;
    if (first == 1) {
      multiply_one_word<AStride>(a, b, c, c_stride);
    } else {
      multiply_words<AStride, BStride>(a, b, first, c, c_stride, beside);
    }
    add_rest<AStride, BStride>(a, b, first, words, chain, c, c_stride, beside);
  }

  /// C = rescale C + A B, row by row, likewise.
  template <int AStride, int BStride = nr, class Beside = nothing_beside>
  static TESSERA_INLINE void rescale_and_add(const float* TESSERA_RESTRICT a,
                                             const float* TESSERA_RESTRICT b, int words, int chain,
                                             const float* TESSERA_RESTRICT rescale,
                                             float* TESSERA_RESTRICT c, std::int64_t c_stride,
                                             const Beside& beside = {}) {
    reg acc[Rows][Vectors];
    const int first = words < chain ? words : chain;
    sum<AStride, BStride>(acc, a, b, first, beside);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg factor = vec::broadcast(rescale[r]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        float* at = c + r * c_stride + v * vec::width;
        vec::store(at, vec::fma(vec::load(at), factor, acc[r][v]));
      }
    }
    add_rest<AStride, BStride>(a, b, first, words, chain, c, c_stride, beside);
  }

  /// To = C + A B, of at least one word: C stays as it is where `to` is another place.
  template <int AStride, int BStride, class Beside = nothing_beside>
  static TESSERA_INLINE void add(const float* TESSERA_RESTRICT a, const float* TESSERA_RESTRICT b,
                                 int words, const float* c, std::int64_t c_stride, float* to,
                                 std::int64_t to_stride, const Beside& beside = {}) {
    reg acc[Rows][Vectors];
    sum<AStride, BStride>(acc, a, b, words, beside);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        const int column = v * vec::width;
        vec::store(to + r * to_stride + column,
                   vec::add(vec::load(c + r * c_stride + column), acc[r][v]));
      }
    }
  }

  /// Sums over words, which begin with start(row, vector); each is given to
  /// finish(row, vector, sum). `beside` goes on before every `words_beside` words.
  template <int AStride, int BStride, class Start, class Finish, class Beside = nothing_beside>
  static TESSERA_INLINE void sum_from(const Start& start, const float* TESSERA_RESTRICT a,
                                      const float* TESSERA_RESTRICT b, int words,
                                      const Finish& finish, const Beside& beside = {}) {
    reg acc[Rows][Vectors];
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = start(r, v);
    }
    if constexpr (!std::is_same_v<Beside, nothing_beside>) {
      for (; words > words_beside; words -= words_beside) {
        beside();
        add_words<AStride, BStride>(acc, a, b, words_beside);
      }
      beside();
    }
    add_words<AStride, BStride>(acc, a, b, words);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) finish(r, v, acc[r][v]);
    }
  }

 private:
  /// Out of line: what stands beside its loop would cost `multiply_words` 1 %.
  template <int AStride>
  [[gnu::noinline]] static void multiply_one_word(const float* a, const float* b, float* c,
                                                  std::int64_t c_stride) {
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) {
        vec::store(c + r * c_stride + v * vec::width,
                   Words::multiply(vec::broadcast(a[r * AStride]), vec::load(b + v * vec::width)));
      }
    }
  }

  /// Two words at least. Stores stand among the last multiply-adds: in one go behind them they
  /// would hold up the next tile.
  template <int AStride, int BStride, class Beside>
  static TESSERA_INLINE void multiply_words(const float* TESSERA_RESTRICT a,
                                            const float* TESSERA_RESTRICT b, int words,
                                            float* TESSERA_RESTRICT c, std::int64_t c_stride,
                                            const Beside& beside) {
    reg acc[Rows][Vectors];
    sum<AStride, BStride>(acc, a, b, words - 1, beside);
    a += words - 1;
    b += std::int64_t{BStride} * (words - 1);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg row = vec::broadcast(a[r * AStride]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        vec::store(c + r * c_stride + v * vec::width,
                   Words::multiply_add(row, vec::load(b + v * vec::width), acc[r][v]));
      }
    }
  }

  /// C += A B over words [done, words), chain by chain. Each is summed up by itself first: one long
  /// running sum would lose more digits.
  template <int AStride, int BStride, class Beside>
  static TESSERA_INLINE void add_rest(const float* TESSERA_RESTRICT a,
                                      const float* TESSERA_RESTRICT b, int done, int words,
                                      int chain, float* TESSERA_RESTRICT c, std::int64_t c_stride,
                                      const Beside& beside) {
    for (; done < words; done += chain) {
      reg acc[Rows][Vectors];
      sum<AStride, BStride>(acc, a + done, b + std::int64_t{done} * BStride,
                            words - done < chain ? words - done : chain, beside);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v) {
          float* at = c + r * c_stride + v * vec::width;
          vec::store(at, vec::add(vec::load(at), acc[r][v]));
        }
      }
    }
  }

  /// The products of the first word, in place of zeros and a sum.
  template <int AStride>
  static TESSERA_INLINE void multiply_first(reg (&acc)[Rows][Vectors],
                                            const float* TESSERA_RESTRICT a,
                                            const float* TESSERA_RESTRICT b) {
    reg column[Vectors];
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) column[v] = vec::load(b + v * vec::width);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg row = vec::broadcast(a[r * AStride]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = Words::multiply(row, column[v]);
    }
  }

  /// The sum over at least one word.
  template <int AStride, int BStride, class Beside>
  static TESSERA_INLINE void sum(reg (&acc)[Rows][Vectors], const float* TESSERA_RESTRICT a,
                                 const float* TESSERA_RESTRICT b, int words, const Beside& beside) {
    beside();
    multiply_first<AStride>(acc, a, b);
    const float* TESSERA_RESTRICT rest_of_a = a + 1;
    const float* TESSERA_RESTRICT rest_of_b = b + BStride;
    int k = 1;
    if constexpr (!std::is_same_v<Beside, nothing_beside>) {
      for (int end = words_beside; end < words; end += words_beside) {
        add_words<AStride, BStride>(acc, rest_of_a, rest_of_b, end - k);
        k = end;
        beside();
      }
    }
    add_words<AStride, BStride>(acc, rest_of_a, rest_of_b, words - k);
  }

  /// acc += A B; `a` and `b` move along.
  template <int AStride, int BStride>
  static TESSERA_INLINE void add_words(reg (&acc)[Rows][Vectors], const float* TESSERA_RESTRICT& a,
                                       const float* TESSERA_RESTRICT& b, int words) {
    for (; words > 0; --words, ++a, b += BStride) {
      reg column[Vectors];
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) column[v] = vec::load(b + v * vec::width);
      if constexpr (rows_from_memory > 0) {
        TESSERA_UNROLL
        for (int r = 0; r < rows_from_memory; ++r) {
          TESSERA_UNROLL
          for (int v = 0; v < Vectors; ++v) {
            acc[r][v] = Words::multiply_add_at(a + r * AStride, column[v], acc[r][v]);
          }
        }
      }
      TESSERA_UNROLL
      for (int r = rows_from_memory; r < Rows; ++r) {
        const reg row = vec::broadcast(a[r * AStride]);
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v) {
          acc[r][v] = Words::multiply_add(row, column[v], acc[r][v]);
        }
      }
    }
  }
};

/// Rows of the next tile where `left` are left: mr as long as there are as many, then the largest
/// power of two below.
template <int Mr>
constexpr int rows_of_tile(int left) {
  return left >= Mr ? Mr : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/// The next smaller number of rows of a tile.
constexpr int fewer_rows(int rows) {
  return rows > 8 ? 8 : rows > 4 ? 4 : rows > 2 ? 2 : 1;
}

/// Calls `body.template operator()<Rows>()` for Rows = `rows`, one of those of rows_of_tile.
template <int Mr, class Body>
TESSERA_INLINE void with_rows(int rows, const Body& body) {
  if constexpr (Mr == 1) {
    body.template operator()<1>();
  } else if (rows == Mr) {
    body.template operator()<Mr>();
  } else {
    with_rows<fewer_rows(Mr)>(rows, body);
  }
}

/// Calls `body.template operator()<Rows>(first)` for every tile of `rows` rows.
template <int Mr, class Body>
TESSERA_INLINE void for_each_row_tile(int rows, const Body& body) {
  int first = 0;
  for (; first + Mr <= rows; first += Mr) body.template operator()<Mr>(first);
  if constexpr (Mr > 1) {
    if (first < rows) {
      for_each_row_tile<fewer_rows(Mr)>(rows - first, [&]<int Rows>(int local) {
        body.template operator()<Rows>(first + local);
      });
    }
  }
}

}  // namespace tessera::prim
