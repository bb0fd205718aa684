// The reference of each operation, by name: what tests, tuner, benches and command need to know of
// an operation beyond its declaration. A family adds its table to `operations.cpp`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/problem.hpp>

#include "elements.hpp"

namespace tessera::support {
class random_source;
}

namespace tessera::reference {

/// An output as the definition gives it, in row-major order.
struct expected_tensor {
  std::size_t tensor = 0;  ///< of the signature
  std::vector<double> values;
  /// What the error of a row of elements is relative to: as many entries as there are rows (a row
  /// has values / entries elements). Empty: the row's largest magnitude along the last axis; whole
  /// numbers are equal bit for bit.
  std::vector<double> sizes{};
  /// The largest sum of |terms| that makes an exponent of the row; empty: there are none.
  std::vector<double> logits{};
  /// The least a row counts for, as a share of the largest one.
  double least_share = 0.01;
  bool copied = false;  ///< equal element by element, whatever the type
};
using expected_tensors = std::vector<expected_tensor>;

/// Which elements of each tensor of a call are looked at; default-constructed ones leave the answer
/// to the contents of the call (lengths, offsets, pages).
using seen_tensors = std::span<seen_elements>;

/// What a call costs on paper.
struct call_work {
  double flops = 0;
  double bytes = 0;          ///< inputs and outputs once, as far as some row looks at them
  double visible_pairs = 0;  ///< attention: triples of query head, query row and key in a softmax
};

/// Which rows of a large call are looked at.
struct sample_plan {
  std::int64_t rows_per_head = 4;
  std::int64_t heads = 2;
};

/// A part of a computed output beside the same part of the definition.
struct output_sample {
  expected_tensor exact, as_stored;
  std::vector<double> computed;
};

/// What a call reads of its largest inputs: the last `extent` of that dim. No dim: all of them.
struct read_part {
  std::string_view dim{};
  std::int64_t extent = 0;
};

struct operation_reference {
  std::string_view op;
  /// The plain definition in double: the outputs that are present.
  expected_tensors (*exact)(const bound_call&) = nullptr;
  /// The same formula in the precision of the tensors: what sets the tolerance. Null: the floor
  /// does.
  expected_tensors (*as_stored)(const bound_call&) = nullptr;

  // Where the declaration cannot say it; null: random numbers do, in every element.

  /// Fills a tensor with values that mean something; false: random numbers do.
  bool (*fill)(const bound_call&, std::size_t tensor, support::random_source&) = nullptr;
  /// Inputs that another operation wrote: no two of their elements share memory.
  std::span<const std::string_view> residuals{};
  /// That operation. It has the same options and the other inputs, under the same names.
  std::string_view residuals_of{};
  /// Whether strides of a tensor depend on each other, so that it is drawn row-major.
  bool (*has_tied_strides)(const bound_call&, std::size_t tensor) = nullptr;
  /// Says what no row looks at beyond what contents say.
  void (*mark_seen)(const bound_call&, seen_tensors) = nullptr;
  /// Steps that the definition takes, of a call whose dims alone are known, where these are more
  /// than products of two tensors take. Null: they are not.
  double (*steps)(const bound_call&) = nullptr;
  /// The extent of a dim that a row was compiled for; 0: any.
  std::int64_t (*row_extent)(const void* config, std::string_view dim) = nullptr;
  /// How many numbers on the way to a result a row rounds to the operands' type. Null: one at most,
  /// which the floor of the type has room for beside the result's own rounding.
  int (*rounded_numbers)(const void* config) = nullptr;

  // For calls that are timed (bench/support/workload.hpp).

  /// Element `at` of an input as ordinary calls have it, where tests `fill` in edges. Null: as
  /// `fill` does, else of mean 0 and variance 1.
  double (*ordinary)(const bound_call&, std::size_t tensor, std::int64_t at,
                     support::random_source&) = nullptr;
  /// Dims along which a large call falls apart: equal shares of them are calls of their own, with
  /// the tensors that have none of them. Null: there are none.
  std::span<const std::string_view> (*independent)(const bound_call&) = nullptr;
  /// Part of the outputs of a call that is too large for `exact`; `computed` are the call's tensors
  /// behind it. Null: there are none so large, or `independent` says how they fall apart.
  output_sample (*sample)(const bound_call&, const tensor_view* computed,
                          const sample_plan&) = nullptr;
  /// Makes the flops, which are one for each element of the largest tensor, and the bytes, which
  /// are those of all tensors, what they are. Null: they are.
  void (*count)(const bound_call&, call_work&) = nullptr;
  /// Null: a call reads its inputs as a whole.
  read_part (*part_read)(const bound_call&) = nullptr;
};

/// Null where an operation has no reference yet.
const operation_reference* reference_of(std::string_view op) noexcept;

/// What a call costs whose tensors of numbers (offsets, lengths, pages) lie in host memory. Pages
/// count as far as sequences use them, axes that broadcast once.
call_work work_of(bound_call call);
inline call_work work_of(const problem_view& call) {
  return work_of(bound_call{.op = call.op, .tensors = call.tensors, .options = call.options});
}

/// Tables of the families.
std::span<const operation_reference> attention_references() noexcept;
std::span<const operation_reference> paged_references() noexcept;
std::span<const operation_reference> ragged_decode_references() noexcept;
std::span<const operation_reference> fp8_references() noexcept;
std::span<const operation_reference> paged_batch_references() noexcept;
std::span<const operation_reference> mean_pooling_references() noexcept;
std::span<const operation_reference> attention_backward_references() noexcept;
std::span<const operation_reference> kv_cache_references() noexcept;
std::span<const operation_reference> chunked_scan_references() noexcept;
std::span<const operation_reference> delta_rule_references() noexcept;
std::span<const operation_reference> selective_scan_references() noexcept;
std::span<const operation_reference> rwkv7_references() noexcept;
std::span<const operation_reference> ragged_delta_rule_references() noexcept;
std::span<const operation_reference> latent_attention_references() noexcept;
std::span<const operation_reference> latent_page_references() noexcept;
std::span<const operation_reference> deepseek_attn_references() noexcept;
std::span<const operation_reference> quantized_references() noexcept;
std::span<const operation_reference> sparse_attention_references() noexcept;
std::span<const operation_reference> losses_references() noexcept;
std::span<const operation_reference> native_sparse_references() noexcept;
std::span<const operation_reference> grouped_matmul_references() noexcept;
std::span<const operation_reference> scaled_matmul_references() noexcept;

/// True for lengths of sequences whose keys lie in pages.
inline bool says_how_pages_are_used(const signature& form, std::size_t tensor) {
  return std::ranges::any_of(form.tensors, [&](const tensor_form& other) {
    return other.holds == tensor_contents::page_numbers &&
           other.used_by == static_cast<int>(tensor);
  });
}
/// True for numbers that say where a call reads, because a dim counts what they are numbers of: its
/// offsets, lengths, pages.
inline bool decides_what_is_read(const signature& form, std::size_t tensor) {
  return form.tensors[tensor].counts >= 0 || says_how_pages_are_used(form, tensor);
}

/// The type whose precision bounds the results of a call: the first one of floats, in the order of
/// the operation's tensors.
inline dtype operand_type(const operation& op, std::span<const tensor_view> tensors) noexcept {
  for (int i = 0; i < op.tensor_count; ++i) {
    const dtype type = tensors[op.order[static_cast<std::size_t>(i)]].type;
    if (is_floating_16_or_32(type)) return type;
  }
  return dtype::none;
}

/// The tensor of that name; absent where the signature has none.
inline tensor_view tensor_named(const bound_call& call, std::string_view name) noexcept {
  const auto tensors = call.form().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return call.tensors[i];
  }
  return {};
}

}  // namespace tessera::reference
