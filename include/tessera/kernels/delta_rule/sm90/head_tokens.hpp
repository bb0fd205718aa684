// The warps that measure chunks with decays of heads, once their rows are there: lengths of rows,
// sums of decays and what follows from them for each token.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/sm90/head_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// A thread has a token.
template <class Element, class Shape>
class token_measurer {
  using memory = head_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  static constexpr int threads = Shape::measurer_threads;
  static_assert(threads == Shape::tokens);

 public:
  __device__ __forceinline__ token_measurer(const delta_rule_kernel_args& args, memory& shared)
      : args_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x) - Shape::loader_threads) {}

  __device__ __forceinline__ void measure_all() {
    const std::uint32_t filled = prim::cuda::shared_address(&shared_.filled);
    prim::cuda::ring_place<Shape::stages> ring;
    put_numbers(ask_for_gates(0));
#pragma unroll 1
    for (std::int64_t token = 0; token < shared_.length; token += Shape::tokens, ring.advance()) {
      thread_ = found_anew(thread_);
      const auto count = static_cast<int>(min(shared_.length - token, std::int64_t{Shape::tokens}));
      head_facts& facts = shared_.facts[ring.stage()];
      ring.wait_full(filled);
      const asked_gates gates = ask_for_gates(token + Shape::tokens);
      put_gates(token, count, facts);
      hand_on(count, shared_.items[ring.stage()], facts);
      put_numbers(gates);
      prim::cuda::show_writes_to_async_units();
      prim::cuda::arrive(loaded(ring.stage()));
    }
    ring.wait_empty(prim::cuda::shared_address(&shared_.ring));
    if (thread_ == 0) {
      shared_.facts[ring.stage()].tokens.end = 0;
      if (Shape::returns) shared_.facts[ring.stage()].whole = decay_behind();
    }
    prim::cuda::arrive(loaded(ring.stage()));
  }

 private:
  static __device__ __forceinline__ void wait() {
    prim::cuda::wait_for_threads(2, threads);
  }
  __device__ __forceinline__ std::uint32_t loaded(std::uint32_t stage) const {
    return prim::cuda::shared_address(&shared_.loaded[stage]);
  }

  /// A token's decay and beta as they come, on their way from memory.
  struct asked_gates {
    std::uint32_t decay = 0, beta = 0;
  };
  /// Nothing waits for the number before it is used.
  static __device__ __forceinline__ std::uint32_t ask(const delta_rule_input& from,
                                                      std::int64_t at) {
    const int is_f32 = from.type == dtype::f32 ? 1 : 0;
    std::uint32_t word;
    asm volatile(
        "{ .reg .pred wide; setp.ne.b32 wide, %2, 0;\n"
        "@wide ld.global.b32 %0, [%1];\n"
        "@!wide ld.global.u16 %0, [%1]; }"
        : "=r"(word)
        : "l"(static_cast<const unsigned char*>(from.data) + at * (is_f32 != 0 ? 4 : 2)),
          "r"(is_f32));
    return word;
  }
  static __device__ __forceinline__ float number_of(std::uint32_t word, dtype type) {
    const auto half = static_cast<std::uint16_t>(word);
    if (type == dtype::f32) return __uint_as_float(word);
    return type == dtype::f16 ? prim::cuda::half_words<f16>::unpack(half)
                              : prim::cuda::half_words<bf16>::unpack(half);
  }
  /// Those of the thread's token of a chunk.
  __device__ __forceinline__ asked_gates ask_for_gates(std::int64_t token) const {
    const std::int64_t at = token + thread_ - earlier();
    asked_gates gates;
    if (token + thread_ >= shared_.length || at < 0) return gates;
    if (args_.decay.data != nullptr) gates.decay = ask(args_.decay, shared_.rows_g.at(at));
    if (Shape::corrects) gates.beta = ask(args_.beta, shared_.rows_beta.at(at));
    return gates;
  }
  __device__ __forceinline__ void put_numbers(const asked_gates& gates) const {
    shared_.gates[thread_] = make_uint2(gates.decay, gates.beta);
  }
  /// Behind the last token beta is 0, and nothing decays.
  __device__ __forceinline__ void put_gates(std::int64_t token, int count,
                                            head_facts& facts) const {
    if (thread_ == 0) {
      facts.tokens = {.token = token, .first = 0, .end = count, .poison = Shape::tokens};
    }
    const bool is_token = thread_ < count;
    const uint2 gates = shared_.gates[thread_];
    float decay = number_of(gates.x, args_.decay.type);
    if constexpr (Shape::corrects) {
      const float beta = number_of(gates.y, args_.beta.type);
      facts.beta[thread_] = is_token ? beta_of<device_code>(args_, beta) : 0.0f;
      if (args_.decay.data != nullptr) decay = shared_.gate.log_decay(decay, 0);
    } else {
      decay += shared_.constant;
    }
    const bool decays = is_token && token + thread_ >= earlier();
    shared_.decays[thread_] = decays ? recurrence::sm80::log2_decay(decay) : 0.0f;
  }
  /// The steps between a token and the one whose decay is in front of it.
  __device__ __forceinline__ int earlier() const {
    return Shape::returns ? shared_.earlier : 0;
  }
  /// What the state that has taken all tokens decays by.
  __device__ __forceinline__ float decay_behind() const {
    if (earlier() == 0 || shared_.length <= 0) return 1.0f;
    float decay = shared_.constant;
    if (args_.decay.data != nullptr) {
      decay += prim::cuda::number_at(args_.decay.data, args_.decay.type,
                                     shared_.rows_g.at(shared_.length - 1));
    }
    return prim::cuda::exp2_fast(recurrence::sm80::log2_decay(decay));
  }

  /// What products take of the thread's token besides its rows.
  __device__ __forceinline__ void hand_on(int count, head_item<Shape>& item, head_facts& facts) {
    wait();
    if (thread_ < 32) sum_decays(facts);
    float scale_q = args_.scale, scale_k = Shape::returns ? shared_.token_scale : 1.0f;
    bool finite = true;
    if constexpr (Shape::corrects) {
      // Of a query it is seen by its own answer alone.
      if (args_.normalizes) scale_q *= measure(item.q, finite);
      finite = true;
      scale_k = measure(item.k, finite);
    }
    wait();
    const float sum = facts.sums[thread_], end = facts.sums[Shape::tokens - 1];
    const float front = prim::cuda::exp2_fast(sum);
    facts.scale_q[thread_] = scale_q;
    facts.scale_k[thread_] = scale_k;
    facts.front_q[thread_] = scale_q * front;
    facts.front_k[thread_] = scale_k * front;
    facts.left[thread_] = scale_k * prim::cuda::exp2_fast(facts.sums[thread_ | 15] - sum);
    facts.rest[thread_] = scale_k * prim::cuda::exp2_fast(end - sum);
    if (thread_ == 0) facts.whole = prim::cuda::exp2_fast(end);
    if constexpr (Shape::corrects) {
      const bool spoils = thread_ < count &&
                          (!finite || prim::cuda::any_not_finite<float>(__float_as_uint(sum)) ||
                           prim::cuda::any_not_finite<float>(__float_as_uint(facts.beta[thread_])));
      if (!any_of_threads(2, threads, spoils)) return;
      if (spoils) atomicMin(&facts.tokens.poison, thread_);
      wait();
      clear_from(facts.tokens.poison, item, facts);
    }
  }
  __device__ __forceinline__ void sum_decays(head_facts& facts) const {
    const float2 own = *reinterpret_cast<const float2*>(shared_.decays + 2 * thread_);
    const float both = own.x + own.y;
    float sum = both;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float left = __shfl_up_sync(prim::cuda::all_lanes, sum, static_cast<unsigned>(step));
      if (thread_ >= step) sum += left;
    }
    const float before = __shfl_up_sync(prim::cuda::all_lanes, sum, 1);
    *reinterpret_cast<float2*>(facts.sums + 2 * thread_) =
        make_float2((thread_ == 0 ? 0.0f : before) + own.x, sum);
  }
  /// 1 over the length of the thread's row, without norms 1; whether the row is finite. (By the
  /// matrix unit it would stand behind products of those who have states.)
  __device__ __forceinline__ float measure(unsigned char* rows, bool& finite) const {
    float sum[4] = {};
#pragma unroll 4
    for (int i = 0; i < key_rows::chunks; ++i) {
      const uint4 chunk = chunk_at(rows, thread_, i);
      const std::uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float low = words::unpack(static_cast<std::uint16_t>(word[j]));
        const float high = words::unpack(static_cast<std::uint16_t>(word[j] >> 16));
        sum[j] = fmaf(low, low, fmaf(high, high, sum[j]));
      }
    }
    const float squares = sum[0] + sum[1] + (sum[2] + sum[3]);
    if (prim::cuda::any_not_finite<float>(__float_as_uint(squares))) {
      finite = is_finite(rows, thread_);
      // 1 over a length beyond f32 is 0.
      if (finite && args_.normalizes) clear_row(rows, thread_);
    }
    return args_.normalizes ? rsqrtf(squares + 1e-6f) : 1.0f;
  }
  static __device__ __forceinline__ bool is_finite(const unsigned char* rows, int row) {
    bool any = false;
#pragma unroll 1
    for (int i = 0; i < key_rows::chunks; ++i) {
      const uint4 chunk = chunk_at(rows, row, i);
      for (const std::uint32_t word : {chunk.x, chunk.y, chunk.z, chunk.w}) {
        any = any || prim::cuda::any_not_finite<Element>(word);
      }
    }
    return !any;
  }
  static __device__ __forceinline__ void clear_row(unsigned char* rows, int row) {
#pragma unroll 1
    for (int i = 0; i < key_rows::chunks; ++i) {
      *reinterpret_cast<uint4*>(rows + key_rows::offset(static_cast<std::uint32_t>(row),
                                                        static_cast<std::uint32_t>(i))) = {};
    }
  }
  static __device__ __forceinline__ uint4 chunk_at(const unsigned char* rows, int row, int chunk) {
    return *reinterpret_cast<const uint4*>(
        rows +
        key_rows::offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(chunk)));
  }
  /// Tokens from the first on that is not finite neither read nor write: rows of k and beta become
  /// 0, and nothing decays.
  __device__ __forceinline__ void clear_from(int poison, head_item<Shape>& item,
                                             head_facts& facts) const {
    constexpr std::uint32_t zeros[4] = {};
#pragma unroll 1
    for (int place = thread_; place < (Shape::tokens - poison) * key_rows::chunks;
         place += threads) {
      const std::uint32_t at =
          key_rows::offset(static_cast<std::uint32_t>(poison + place / key_rows::chunks),
                           static_cast<std::uint32_t>(place % key_rows::chunks));
      prim::cuda::store_shared_16(prim::cuda::shared_address(item.k) + at, zeros);
    }
    const float last = poison > 0 ? facts.sums[poison - 1] : 0.0f;
    if (thread_ == 0) facts.whole = 1.0f;
    facts.rest[thread_] = 0.0f;
    if (thread_ < poison && (thread_ | 15) >= poison) {
      facts.left[thread_] =
          facts.scale_k[thread_] * prim::cuda::exp2_fast(last - facts.sums[thread_]);
    }
    if (thread_ < poison) return;
    facts.sums[thread_] = last;
    facts.scale_k[thread_] = facts.left[thread_] = 0.0f;
    facts.front_k[thread_] = facts.beta[thread_] = 0.0f;
  }

  const delta_rule_kernel_args& args_;
  memory& shared_;
  int thread_;
};

}  // namespace tessera::kernels::delta_rule::sm90
