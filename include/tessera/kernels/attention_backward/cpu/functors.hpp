// Functors of the caller in the gradients: what they are given and their derivatives are written
// down beside the logits, and the gradients of their parameters are a pass of their own.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/kernels/attention_backward/cpu/walk.hpp>

namespace tessera::kernels::attention_backward::cpu {

/// Gradients of the parameters of a functor of logits. Lanes, of which there are as many on every
/// machine, take the blocks of queries in turn and have sums of their own, which are added up in
/// their order: no bit depends on threads.
template <class Row>
class parameter_gradients {
  using shape = traits<Row>;
  using query_rows = typename shape::query_rows;

 public:
  parameter_gradients(const attention_backward_kernel_args& args, const launch_memory<Row>& memory)
      : args_(args), memory_(memory), blocks_(block_walk<Row>::blocks_of(args.forward)) {}

  void run_lane(std::int64_t lane, int thread) const {
    double* const sums = memory_.d_parameters + lane * memory_.parameters;
    for (std::int64_t at = 0; at < memory_.parameters; ++at) sums[at] = 0.0;
    const attention_kernel_args& of = args_.forward;
    const scratch<Row> buffers = memory_.of_thread(thread, of);
    const block_walk<Row> walk(args_, memory_, buffers);
    const std::int64_t step = block_walk<Row>::queries_of(of);
    for (std::int64_t item = lane; item < of.batch * of.kv_heads * blocks_;
         item += parameter_lanes) {
      const std::int64_t begin = item % blocks_ * step;
      walk.run(item / blocks_ / of.kv_heads, static_cast<int>(item / blocks_ % of.kv_heads),
               {begin, begin + step}, {0, INT64_MAX},
               [&](const query_rows& rows, seen_columns seen, std::int64_t key0, int count) {
                 add_block(rows, seen, key0, count, sums, buffers);
               });
    }
  }

  void store() const {
    float* const to = memory_.hooks->logits.d_parameters();
    for (std::int64_t at = 0; at < memory_.parameters; ++at) {
      double sum = 0.0;
      for (std::int64_t lane = 0; lane < parameter_lanes; ++lane) {
        sum += memory_.d_parameters[lane * memory_.parameters + at];
      }
      to[at] = static_cast<float>(sum);
    }
  }

 private:
  void add_block(const query_rows& rows, seen_columns seen, std::int64_t key0, int count,
                 double* sums, const scratch<Row>& buffers) const {
    const auto add = [&](std::int64_t parameter, float gradient) {
      if (parameter >= 0 && parameter < memory_.parameters) {
        sums[parameter] += static_cast<double>(gradient);
      }
    };
    const int end = seen.high < count ? seen.high : count;
    for (int r = 0; r < rows.count(); ++r) {
      const std::int64_t row = std::int64_t{r} * shape::score_stride;
      position at = rows.position_of(r);
      for (int c = seen.low; c < end; ++c) {
        const float d_logit = buffers.d_logits[row + c];
        if (d_logit == 0.0f) continue;  // of hidden keys, too
        at.key = key0 + c;
        memory_.hooks->logits.add_gradients(d_logit, buffers.functor_scores[row + c], at, add);
      }
    }
  }

  const attention_backward_kernel_args& args_;
  const launch_memory<Row>& memory_;
  std::int64_t blocks_;
};

}  // namespace tessera::kernels::attention_backward::cpu
