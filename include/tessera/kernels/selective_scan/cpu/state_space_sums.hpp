// Gradients of a selective state-space call that are sums of many blocks: of parameters over
// sequences, of B and C over the blocks of a group. Parts lie in the workspace and are added up in
// one order, so that no bit depends on threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_block.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_gradients.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::selective_scan::cpu {

template <class Kernel>
class state_space_sums {
  using cut_type = state_space_cut<Kernel>;
  using isa_type = typename cut_type::isa_type;
  using gradients_type = state_space_gradients<Kernel>;
  static constexpr bool shares_steps = cut_type::shares_steps;

 public:
  explicit state_space_sums(const state_space_kernel_args& args) : args_(args), cut_{args} {
    prim::float_carver counter(nullptr);
    static_cast<void>(gradients_type::take_parameters(args, cut_.width(), counter));
    parameter_bytes_ = counter.bytes();
  }

  /// Sequences n, n + parts, ... are one work item with each block.
  std::int64_t parts() const { return std::min<std::int64_t>(args_.sequences.count, 16); }

  std::size_t bytes() const {
    prim::float_carver groups(nullptr);
    static_cast<void>(groups.take(tokens() * cut_.blocks() * 2 * row()));
    return parameter_bytes() + groups.bytes();
  }

  parameter_sums parameters_at(std::byte* workspace, std::int64_t part, std::int64_t block) const {
    const std::int64_t index = part * cut_.blocks() + block;
    prim::float_carver memory(workspace + static_cast<std::size_t>(index) * parameter_bytes_);
    return gradients_type::take_parameters(args_, cut_.width(), memory);
  }
  group_sums groups_at(std::byte* workspace, std::int64_t entry, std::int64_t token,
                       std::int64_t block) const {
    const std::int64_t index = (entry * args_.sequences.tokens + token) * cut_.blocks() + block;
    float* const first =
        reinterpret_cast<float*>(workspace + parameter_bytes()) + index * 2 * row();
    return {first, first + row()};
  }

  /// Parts become gradients.
  void add_up(std::byte* workspace, int threads) const {
    prim::parallel_items<isa_type>(
        cut_.blocks(), threads, [&](std::int64_t block, int) { add_parameters(workspace, block); });
    const std::int64_t used = used_tokens<isa_type>(args_.sequences);
    prim::parallel_items<isa_type>(
        entries_of<isa_type>(args_.sequences) * used, threads, [&](std::int64_t index, int) {
          add_groups(workspace, index / used, index % used, &group_sums::b, args_.d_B);
          add_groups(workspace, index / used, index % used, &group_sums::c, args_.d_C);
        });
  }

 private:
  std::size_t parameter_bytes() const {
    return static_cast<std::size_t>(parts() * cut_.blocks()) * parameter_bytes_;
  }
  std::int64_t tokens() const {
    return entries_of<isa_type>(args_.sequences) * args_.sequences.tokens;
  }
  std::int64_t row() const { return padded<isa_type>(args_.states); }

  /// The sum over parts of one float of a block's sums.
  double sum_of(std::byte* workspace, std::int64_t block, float* parameter_sums::*rows,
                std::int64_t at) const {
    double sum = 0;
    for (std::int64_t part = 0; part < parts(); ++part) {
      sum += static_cast<double>((parameters_at(workspace, part, block).*rows)[at]);
    }
    return sum;
  }

  void add_parameters(std::byte* workspace, std::int64_t block) const {
    const channel_block channels = cut_.block_at(0, block);
    add_row(workspace, channels, block, &parameter_sums::skip, 0, args_.d_D, 0);
    if (shares_steps) {
      add_row(workspace, channels, block, &parameter_sums::decays, 0, args_.d_A, 0);
      store_sum<isa_type>(args_.d_dt_bias, channels.head * args_.d_dt_bias.head,
                          sum_of(workspace, block, &parameter_sums::bias, 0));
      return;
    }
    add_row(workspace, channels, block, &parameter_sums::bias, 0, args_.d_dt_bias, 0);
    for (std::int64_t n = 0; n < args_.states; ++n) {
      add_row(workspace, channels, block, &parameter_sums::decays, n * cut_.width(), args_.d_A,
              n * args_.d_A.state);
    }
  }

  /// A gradient of each channel, or of the head (stride 0): then the channels' sum.
  void add_row(std::byte* workspace, const channel_block& channels, std::int64_t block,
               float* parameter_sums::*rows, std::int64_t first, const scan_tensor& to,
               std::int64_t offset) const {
    double head_sum = 0;
    const bool of_channels = !shares_steps || to.column != 0;
    const std::int64_t at_head = channels.head * to.head + offset;
    for (std::int64_t column = 0; column < channels.columns; ++column) {
      const double sum = sum_of(workspace, block, rows, first + column);
      head_sum += sum;
      if (of_channels)
        store_sum<isa_type>(to, at_head + (channels.first + column) * to.column, sum);
    }
    if (!of_channels) store_sum<isa_type>(to, at_head, head_sum);
  }

  void add_groups(std::byte* workspace, std::int64_t entry, std::int64_t token,
                  float* group_sums::*rows, const scan_tensor& to) const {
    const std::int64_t blocks = args_.heads_per_group * cut_.blocks_per_head();
    for (std::int64_t group = 0; group < args_.groups; ++group) {
      const std::int64_t offset = offset_at(to, entry, token, group);
      for (std::int64_t n = 0; n < args_.states; ++n) {
        double sum = 0;
        for (std::int64_t block = group * blocks; block < (group + 1) * blocks; ++block) {
          sum += static_cast<double>((groups_at(workspace, entry, token, block).*rows)[n]);
        }
        store_sum<isa_type>(to, offset + n, sum);
      }
    }
  }

  const state_space_kernel_args& args_;
  cut_type cut_;
  std::size_t parameter_bytes_ = 0;
};

}  // namespace tessera::kernels::selective_scan::cpu
