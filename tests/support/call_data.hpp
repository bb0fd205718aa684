// The tensors of a call of any operation in guarded memory: layouts, values, contents, and NaN and
// Inf wherever nobody looks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/problem_text.hpp>

#include "call_problem.hpp"
#include "guarded_tensor.hpp"
#include "random.hpp"

namespace tessera::support {

/// How the tensors of a call lie and what they hold.
struct memory_wishes {
  bool row_major = false;  ///< without gaps
  bool aligned = false;    ///< rows that kernels of GPUs want aligned are
  bool poison = true;      ///< NaN and Inf wherever nobody looks
  bool even = false;       ///< contents that cut evenly and fill everything
};

class call_data {
 public:
  /// Extents that follow from contents are set here.
  call_data(owned_problem problem, random_source& random, const memory_wishes& wishes = {});
  call_data(const call_data&) = delete;
  call_data& operator=(const call_data&) = delete;

  /// Why the call is not legal; success if it is.
  const status& refusal() const noexcept { return refusal_; }
  const operation& op() const noexcept { return *problem_.op; }
  /// The call as the checks leave it.
  const bound_call& call() const noexcept { return call_; }
  const tensor_view* tensors() const noexcept { return problem_.tensors.data(); }
  const void* options() const noexcept { return problem_.options.data(); }
  problem_view problem() const noexcept { return problem_.view(); }
  const owned_problem& owned() const noexcept { return problem_; }
  const memory_wishes& wishes() const noexcept { return wishes_; }
  /// The problem as text, for messages.
  std::string text() const { return text_of(problem_.view()); }

  /// Every byte as before the first run: outputs as never written.
  void reset();
  /// What the tensors hold now is what they are reset to.
  void remember();
  bool outputs_untouched() const;
  /// Nothing but elements of the outputs has been written.
  bool intact() const;
  /// The bytes of every output.
  std::vector<std::vector<std::byte>> output_bytes() const;
  bool has_output_elements() const;

 private:
  bool is_positive(std::size_t tensor) const;
  bool is_written(std::size_t tensor) const;
  tensor_layout drawn_layout(std::size_t tensor, random_source& random) const;
  void place(std::size_t tensor, random_source& random);
  void place_late(std::size_t tensor, random_source& random);
  bool place_in_shared(std::size_t tensor, random_source& random);
  void fill(std::size_t tensor, random_source& random);
  void poison(random_source& random);

  owned_problem problem_;
  memory_wishes wishes_;
  bound_call call_;
  status refusal_;
  std::array<guarded_tensor, max_tensors> memory_;  ///< absent where a tensor lies in another's
  std::array<std::vector<std::byte>, max_tensors> before_;
  std::uint32_t written_ = 0;  ///< bits of the memory that outputs lie in
};

/// A random legal call, or null where none was found.
std::unique_ptr<call_data> drawn_call(const operation& op, random_source& random,
                                      const call_wishes& wishes = {},
                                      const memory_wishes& memory = {});

}  // namespace tessera::support
