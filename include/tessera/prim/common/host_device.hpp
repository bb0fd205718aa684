// The compiler-specific words of the primitives. TESSERA_HD marks functions that host and device
// code share; TESSERA_INLINE those that must disappear into their caller.
#pragma once

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__
#else
#define TESSERA_HD
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TESSERA_INLINE __attribute__((always_inline)) inline
#define TESSERA_RESTRICT __restrict__
#define TESSERA_PREFETCH(address) __builtin_prefetch(address)
#define TESSERA_PREFETCH_L2(address) __builtin_prefetch(address, 0, 2)
#else
#define TESSERA_INLINE inline
#define TESSERA_RESTRICT
#define TESSERA_PREFETCH(address) static_cast<void>(address)
#define TESSERA_PREFETCH_L2(address) static_cast<void>(address)
#endif

// In front of a loop whose rounds do not depend on each other.
#if defined(__clang__)
#define TESSERA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define TESSERA_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TESSERA_INDEPENDENT
#endif

// Asks for a loop of at most 16 rounds to be unrolled completely, so that an array indexed by its
// counter lives in registers.
#if defined(__clang__)
#define TESSERA_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define TESSERA_UNROLL _Pragma("GCC unroll 16")
#else
#define TESSERA_UNROLL
#endif
