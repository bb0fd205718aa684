// Sums over tokens and what is made of them. A work item sums up its own tokens, then items are
// added in their order: the same bits for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::losses::cpu {

/// What a token's row gives, without its weight.
struct row_value {
  double loss = 0;
  double beside = 0;  ///< what is reduced like the loss: z part, entropy of the teacher
  bool correct = false;
};

/// Weighted sums of the values of rows.
struct alignas(64) loss_totals {
  double loss = 0;
  double beside = 0;
  double weight = 0;
  double correct = 0;

  TESSERA_INLINE void add(double of_row, const row_value& value) {
    loss += of_row * value.loss;
    beside += of_row * value.beside;
    weight += of_row;
    if (value.correct) correct += of_row;
  }
};

/// Outputs of a loss: those of single tokens as they come, those of all at the end.
template <class Isa>
class loss_outputs {
 public:
  loss_outputs(const loss_tokens& tokens, const token_rows& beside, float* accuracy)
      : tokens_(tokens), beside_(beside), accuracy_(accuracy) {}

  /// A token that counts.
  void add(loss_totals& totals, const token_place& at, double weight,
           const row_value& value) const {
    totals.add(weight, value);
    if (tokens_.reduction != loss_reduction::none) return;
    store(tokens_.loss, at, weight * value.loss);
    store(beside_, at, weight * value.beside);
  }
  /// A token of weight 0, whose logits nobody looks at.
  void skip(const token_place& at) const {
    if (tokens_.reduction != loss_reduction::none) return;
    store(tokens_.loss, at, 0);
    store(beside_, at, 0);
  }

  void finish(const loss_totals* items, std::int64_t count) const {
    loss_totals all;
    for (std::int64_t item = 0; item < count; ++item) {
      all.loss += items[item].loss;
      all.beside += items[item].beside;
      all.weight += items[item].weight;
      all.correct += items[item].correct;
    }
    if (tokens_.weight_sum != nullptr) *tokens_.weight_sum = static_cast<float>(all.weight);
    const double mean = mean_divisor<Isa>(all.weight);
    if (accuracy_ != nullptr) *accuracy_ = static_cast<float>(all.correct / mean);
    if (tokens_.reduction == loss_reduction::none) return;
    const double divisor = tokens_.reduction == loss_reduction::mean ? mean : 1;
    store(tokens_.loss, {}, all.loss / divisor);
    store(beside_, {}, all.beside / divisor);
  }

 private:
  static void store(const token_rows& to, const token_place& at, double value) {
    if (to.data == nullptr) return;
    static_cast<float*>(to.data)[offset_of<Isa>(to, at)] = static_cast<float>(value);
  }

  const loss_tokens& tokens_;
  const token_rows& beside_;
  float* accuracy_;
};

}  // namespace tessera::kernels::losses::cpu
