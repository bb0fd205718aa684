// Tensors for a problem of any operation, filled reproducibly with ordinary values, and the verdict
// on what a call makes of them: what tuner, benches and the `model` command run when there is no
// file. Large tensors can be moving pieces of larger memory, so that successive rounds read what no
// cache holds, as a server does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/lengths.hpp"
#include "bench/support/memory.hpp"
#include "tests/reference/operations.hpp"
#include "tests/support/call_judge.hpp"
#include "tests/support/random.hpp"

namespace tessera::bench {

struct workload_wishes {
  /// The large tensors lie in memory of at least so much together, of which each round uses another
  /// piece; 0: exactly their own.
  std::size_t cold_bytes = 0;
  length_profile lengths = length_profile::equal;
  std::uint64_t seed = 1;
  bool outputs = true;  ///< false: outputs have shapes, but no memory
};

/// Memory in which tensors lie, those of all rounds.
struct memory_block {
  std::span<std::byte> bytes;
  bool is_read = false, is_written = false;
};

class workload {
 public:
  /// Every tensor that the problem has or needs, and the free outputs, but that which no kernel
  /// writes.
  explicit workload(const problem_view& problem, const workload_wishes& wishes = {});

  /// Why the problem is none; success if it is one.
  const status& refusal() const noexcept { return refusal_; }
  problem_view problem() const noexcept { return problem_.view(); }

  /// The tensors of a round, a view per tensor of the signature; rounds cycle through the pieces,
  /// far jumps in between.
  std::vector<tensor_view> tensors(std::size_t round = 0) const;
  std::vector<tensor_view> args(std::size_t round = 0) const { return tensors(round); }
  std::vector<memory_block> blocks() const;

  /// What a call costs.
  reference::call_work work() const;

  /// The output that is furthest out of bound (see support::worst_output) among the tensors that
  /// round 0 has computed, here or (not null) in other memory of the host.
  support::judged_output verdict(const tensor_view* computed = nullptr,
                                 const reference::sample_plan& plan = {},
                                 bool thorough = true) const;

 private:
  /// The memory of a tensor, and where in it the pieces lie.
  struct tensor_memory {
    buffer bytes{};
    std::vector<std::byte> before{};  ///< written in place: what the first piece held
    std::size_t pieces = 1;
    std::size_t step = 0;  ///< bytes from piece to piece
  };
  /// How rounds move through a tensor: by so many elements of an axis.
  struct movement {
    std::size_t axis = 0;
    std::int64_t extent = 0;  ///< 0: not at all
    std::size_t bytes = 0;
  };

  bound_call bind(const tensor_view* tensors) const noexcept;
  bool is_output(std::size_t tensor) const noexcept;
  void drop_what_only_has_a_shape();
  void settle_late_extents(const bound_call& call);
  void add_outputs(bound_call& call);
  void make_lists(length_profile profile);
  movement movement_of(std::size_t tensor, std::size_t largest) const;
  void make_values();
  void make_residuals();
  void make(std::size_t tensor, const movement& moves, std::size_t pieces);
  void fill(std::size_t tensor, const tensor_view& memory);
  void draw(std::size_t tensor, const tensor_view& part);

  owned_problem problem_;  ///< its tensors have memory: the first piece
  workload_wishes wishes_;
  bound_call call_;
  status refusal_;
  support::random_source random_;
  std::array<tensor_memory, max_tensors> memory_;
};

/// The same with the structs of a family.
template <class Problem>
class workload_of : public workload {
 public:
  using args_type = typename Problem::args_type;
  using options_type = typename Problem::options_type;

  explicit workload_of(const Problem& problem, const workload_wishes& wishes = {})
      : workload(view_of(problem), wishes) {}

  args_type args(std::size_t round = 0) const {
    args_type args;
    std::ranges::copy(tensors(round), tensors_of(args));
    return args;
  }
  const options_type& options() const noexcept {
    return *static_cast<const options_type*>(problem().options);
  }
};

}  // namespace tessera::bench
