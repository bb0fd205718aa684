// What pairs of tokens of a channel give to the gradients of decays: W of
// chunk_decay_gradients.hpp, for `pairs` tokens j at a time.
#pragma once

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_rows.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: queries read the state in front of their token.
template <class Element, class Shape, bool Before>
class decay_pairs : protected decay_rows<Element, Shape> {
  using base = decay_rows<Element, Shape>;

 protected:
  using base::channel_;
  using base::count_;
  using base::decay;
  using base::decay_rows;
  using base::key;
  using base::query;
  using base::shared_;
  using sums = channel_sums<Shape>;

  /// W of the tokens j of `pairs` from `first` on: added to those of s, taken from those of j. For
  /// s behind `pairs` it is one factor of j and one of s, at most 1, times the score.
  __device__ __forceinline__ void add_pairs(sums& to, int first) const {
    if (first >= count_) return;
    pair_sums of;
#pragma unroll
    for (int j = 0; j < Shape::pairs; ++j) {
      of.keys[j] = key(first + j);
      of.left[j] = 1.0f;
      of.sums[j] = 0.0f;
    }
#pragma unroll
    for (int i = 1; i < Shape::pairs; ++i) take(of, to, first, first + i);
    give(of, to, first);
    float left = 1.0f;
#pragma unroll 2
    for (int s = first + Shape::pairs; s < count_; ++s) {
      const float next = left * decay(s), read = query(s) * (Before ? left : next);
      float sum = 0.0f;
      for_each_score(first, s, Shape::pairs, [&](int j, float score) {
        sum = fmaf(score, of.keys[j], sum);
        of.sums[j] = fmaf(score, read, of.sums[j]);
      });
      add_to(to, s, sum, read);
      left = next;
    }
#pragma unroll
    for (int j = 0; j < Shape::pairs; ++j) *to.at(first + j, channel_) -= of.sums[j] * of.keys[j];
  }

 private:
  /// Tokens j of `pairs` from `first` on.
  struct pair_sums {
    float keys[Shape::pairs], left[Shape::pairs], sums[Shape::pairs];
  };
  /// Calls body(j, score) for the first `earlier` tokens j of `pairs` from `first` on.
  template <class Body>
  __device__ __forceinline__ void for_each_score(int first, int s, int earlier,
                                                 const Body& body) const {
    const float* const scores = shared_.of_pairs.scores.at(s, first);
#pragma unroll
    for (int j = 0; j < Shape::pairs; j += 4) {
      if (j >= earlier) break;
      const auto four = *reinterpret_cast<const float4*>(scores + j);
      const float score[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (j + i >= earlier) break;
        body(j + i, score[i]);
      }
    }
  }
  /// What W of a token s adds; a query that reads in front of its token adds to the one before it.
  __device__ __forceinline__ void add_to(sums& to, int s, float sum, float read) const {
    float& of_s = *to.at(s - (Before ? 1 : 0), channel_);
    of_s = fmaf(sum, read, of_s);
  }
  /// W of a token s with those of the `pairs` from `first` on that are in front of it, the last of
  /// which has not decayed yet where queries read in front of their token.
  __device__ __forceinline__ void take(pair_sums& of, sums& to, int first, int s) const {
    const float here = decay(s - (Before ? 1 : 0)), read = query(s);
    const int last = s - first - 1;
    float sum = 0.0f;
    for_each_score(first, s, last + 1, [&](int j, float score) {
      if (!Before || j < last) of.left[j] *= here;
      const float weight = of.left[j] * score;
      sum = fmaf(weight, of.keys[j], sum);
      of.sums[j] = fmaf(weight, read, of.sums[j]);
    });
    add_to(to, s, sum, read);
  }
  /// Sums of the tokens j so far are taken from theirs; keys become what is left of them at the end
  /// of `pairs`.
  __device__ __forceinline__ void give(pair_sums& of, sums& to, int first) const {
    const float last = Before ? decay(first + Shape::pairs - 1) : 1.0f;
#pragma unroll
    for (int j = 0; j < Shape::pairs; ++j) {
      *to.at(first + j, channel_) -= of.sums[j] * of.keys[j];
      if (j < Shape::pairs - 1) of.left[j] *= last;
      of.keys[j] *= of.left[j];
      of.sums[j] = 0.0f;
    }
  }
};

}  // namespace tessera::kernels::chunked_scan::sm80
