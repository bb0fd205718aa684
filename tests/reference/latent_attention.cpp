// What tests need to know of latent attention.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/families/latent_attention/flash_mla_declaration.hpp>

#include "../support/random.hpp"
#include "attention_backward.hpp"
#include "attention_outputs.hpp"
#include "expanded_latents.hpp"
#include "flash_attention.hpp"
#include "latent_gradients.hpp"
#include "operations.hpp"
#include "store.hpp"
#include "visible_pairs.hpp"

namespace tessera::reference {
namespace {

using flash_mla_table::tensor;

const flash_mla_args& args_of(const bound_call& call) {
  return *reinterpret_cast<const flash_mla_args*>(call.tensors);
}

/// The largest sum of |terms| that makes an element of a key or value from a latent, and the
/// largest element.
struct expansion_terms {
  double sum = 0, element = 0;
};
expansion_terms terms_of(const tensor_view& latents, const tensor_view& weights) {
  expansion_terms most;
  for (std::int64_t b = 0; b < latents.extent[0]; ++b) {
    for (std::int64_t s = 0; s < latents.extent[1]; ++s) {
      for (std::int64_t g = 0; g < weights.extent[1]; ++g) {
        for (std::int64_t c = 0; c < weights.extent[2]; ++c) {
          double sum = 0, element = 0;
          for (std::int64_t r = 0; r < latents.extent[2]; ++r) {
            const double term = at(latents, b, s, r) * at(weights, r, g, c);
            if (!std::isfinite(term)) continue;
            sum += std::fabs(term), element += term;
          }
          most.sum = std::max(most.sum, sum);
          most.element = std::max(most.element, std::fabs(element));
        }
      }
    }
  }
  return most;
}

/// The largest sum of |terms| of a logit, latents' included.
double logit_terms(const flash_mla_args& given, double scale) {
  double most = 0;
  for (std::int64_t b = 0; b < given.q.extent[0]; ++b) {
    for (std::int64_t s = 0; s < given.q.extent[1]; ++s) {
      for (std::int64_t h = 0; h < given.q.extent[2]; ++h) {
        double sum = 0;
        for (std::int64_t c = 0; c < given.w_kc.extent[2]; ++c) {
          const double q = std::fabs(at(given.q, b, s, h, c));
          if (std::isfinite(q)) sum += q;
        }
        most = std::max(most, sum);
      }
    }
  }
  return most * std::fabs(scale) * terms_of(given.ckv, given.w_kc).sum;
}

/// As rows for the matrix unit have them: keys and values of bf16 are tensors of bf16.
template <class Precision>
dtype stored_keys(const bound_call& call) {
  const bool rounds = std::is_same_v<Precision, as_stored>;
  return rounds && args_of(call).ckv.type == dtype::bf16 ? dtype::bf16 : dtype::f64;
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const expanded_latents<typename Precision::real> expanded(args_of(call),
                                                            stored_keys<Precision>(call));
  const flash_attention_options options = attention_options(call.options_as<flash_mla_options>());
  const flash_result result = flash_attention<Precision>(expanded.args(), options);
  expected_tensors all = expected_out_and_lse(result, call, tensor("out"), tensor("lse"));
  // Keys and values are sums that may cancel.
  const double width = static_cast<double>(expanded.args().q.extent[3]);
  const double logit =
      logit_terms(args_of(call), options.softmax_scale.value_or(1.0 / std::sqrt(width)));
  const expansion_terms values = terms_of(args_of(call).ckv, args_of(call).w_vc);
  for (expected_tensor& output : all) {
    for (double& terms : output.logits) terms = std::max(terms, logit);
    if (output.tensor != static_cast<std::size_t>(tensor("out")) || values.element == 0) continue;
    for (double& size : output.sizes) size *= values.sum / values.element;
  }
  return all;
}

/// The largest of each row of `width` elements.
std::vector<double> largest_of_rows(const std::vector<double>& values, std::int64_t width) {
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(width, 1));
  std::vector<double> most(values.size() / step, 0.0);
  for (std::size_t n = 0; n < most.size() * step; ++n) {
    most[n / step] = std::max(most[n / step], values[n]);
  }
  return most;
}

template <class Precision>
expected_tensors evaluated_gradients(const bound_call& call) {
  const latent_gradients<Precision> gradients(args_of(call), call.options_as<flash_mla_options>());
  expected_tensors all;
  for (const auto& [name, found] : gradients.named()) {
    const auto index =
        static_cast<std::size_t>(declared::index_of(call.form().tensors, name, &tensor_form::name));
    if (!call.has(index)) continue;
    const tensor_view& view = call.tensors[index];
    const bool rows = name != "d_bias_post" && name != "d_sinks";
    const std::int64_t width = rows ? view.extent[static_cast<std::size_t>(view.rank - 1)] : 1;
    all.push_back(
        {.tensor = index,
         .values = found->values,
         .sizes = largest_of_rows(found->sizes, width),
         .logits = largest_of_rows(found->logits, width),
         // Sums over tokens of products that are sums over latents, all of which may cancel.
         .least_share = 0.05});
  }
  const flash_mla_args& given = args_of(call);
  const std::int64_t rope = given.k_pe.present() ? given.k_pe.extent[2] : 0;
  const double root = std::sqrt(static_cast<double>(given.w_kc.extent[2] + rope));
  const double logit =
      logit_terms(given, call.options_as<flash_mla_options>().softmax_scale.value_or(1.0 / root));
  for (expected_tensor& output : all) {
    for (double& terms : output.logits) terms = std::max(terms, logit);
  }
  return all;
}

/// Biases, masks and sinks are those of attention, out and lse what the forward call gives.
bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  const bool out = index == tensor("out"), lse = index == tensor("lse");
  if (!out && !lse) return reference_of("flash_attention")->fill(call, index, random);
  const expanded_latents<double> expanded(args_of(call));
  const flash_result result = flash_attention<exact>(
      expanded.args(), attention_options(call.options_as<flash_mla_options>()));
  const std::vector<double>& values = out ? result.out : result.lse;
  for_each_element(call.tensors[index], [&](std::int64_t flat, std::int64_t offset) {
    store(call.tensors[index], offset, values[static_cast<std::size_t>(flat)]);
  });
  return true;
}

/// What somebody sees of keys and queries, in terms of what they are made of.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const flash_mla_args& given = args_of(call);
  const expanded_latents<double> expanded(given);
  const flash_attention_args& args = expanded.args();
  seen_elements q, k, v, bias_pre;
  mark_visible(args, attention_options(call.options_as<flash_mla_options>()),
               {&q, &k, &v, &bias_pre, &seen[tensor("bias_post")]});
  for (const std::string_view name : {"ckv", "k_pe", "q_pe", "q", "w_kc", "w_vc"}) {
    const auto index =
        static_cast<std::size_t>(declared::index_of(call.form().tensors, name, &tensor_form::name));
    seen[index] = seen_elements(call.tensors[index]);
  }
  const auto mark_token = [&](std::int8_t index, std::int64_t b, std::int64_t s) {
    const tensor_view& rows = call.tensors[index];
    if (!rows.present()) return;
    seen[static_cast<std::size_t>(index)].mark(b * rows.stride[0] + s * rows.stride[1],
                                               rows.extent[2]);
  };
  for (std::int64_t b = 0; b < args.q.extent[0]; ++b) {
    for (std::int64_t s = 0; s < args.q.extent[1]; ++s) {
      for (std::int64_t h = 0; h < args.q.extent[2]; ++h) {
        if (!q[b * args.q.stride[0] + s * args.q.stride[1] + h * args.q.stride[2]]) continue;
        seen[tensor("q")].mark(
            b * given.q.stride[0] + s * given.q.stride[1] + h * given.q.stride[2],
            given.q.extent[3]);
        mark_token(tensor("q_pe"), b, s);
      }
      for (std::int64_t g = 0; g < args.k.extent[2]; ++g) {
        if (!k[b * args.k.stride[0] + s * args.k.stride[1] + g * args.k.stride[2]]) continue;
        mark_token(tensor("ckv"), b, s);
        mark_token(tensor("k_pe"), b, s);
        for (const std::int8_t weights : {tensor("w_kc"), tensor("w_vc")}) {
          const tensor_view& of = call.tensors[weights];
          for (std::int64_t r = 0; r < of.extent[0]; ++r) {
            seen[static_cast<std::size_t>(weights)].mark(r * of.stride[0] + g * of.stride[1],
                                                         of.extent[2]);
          }
        }
      }
    }
  }
}

/// Of rows that see something all of out, d_out and d_lse is looked at.
void mark_seen_backward(const bound_call& call, seen_tensors seen) {
  mark_seen(call, seen);
  const flash_mla_args& given = args_of(call);
  seen_elements out(given.out), lse(given.lse), d_out(given.d_out), d_lse(given.d_lse);
  const std::int64_t value = given.out.extent[3];
  for (std::int64_t b = 0; b < given.q.extent[0]; ++b) {
    for (std::int64_t s = 0; s < given.q.extent[1]; ++s) {
      for (std::int64_t h = 0; h < given.q.extent[2]; ++h) {
        const std::array<std::int64_t, 3> of_row{b, h, s};
        lse.mark(offset_of(given.lse, of_row));
        if (read(given.lse, offset_of(given.lse, of_row)) == -HUGE_VAL) continue;
        if (given.d_lse.present()) d_lse.mark(offset_of(given.d_lse, of_row));
        out.mark(offset_of(given.out, std::array<std::int64_t, 4>{b, s, h, 0}), value);
        d_out.mark(offset_of(given.d_out, std::array<std::int64_t, 4>{b, s, h, 0}), value);
      }
    }
  }
  seen[tensor("out")] = std::move(out), seen[tensor("lse")] = std::move(lse);
  seen[tensor("d_out")] = std::move(d_out), seen[tensor("d_lse")] = std::move(d_lse);
}

/// Keys and values are made once, then there is attention on them.
void count(const bound_call& call, call_work& work) {
  const flash_mla_args& given = args_of(call);
  const std::int64_t entries = given.q.extent[0], length = given.q.extent[1];
  const std::int64_t rope = given.k_pe.present() ? given.k_pe.extent[2] : 0;
  const std::int64_t kv_heads = given.w_kc.extent[1];
  const std::int64_t nope = given.w_kc.extent[2], value = given.w_vc.extent[2];
  flash_attention_args shapes{
      .q = shaped(given.q.type, {entries, length, given.q.extent[2], nope + rope}),
      .k = shaped(given.q.type, {entries, length, kv_heads, nope + rope}),
      .v = shaped(given.q.type, {entries, length, kv_heads, value}),
      .bias_post = given.bias_post,
      .mask = given.mask};
  const attention_counts counts =
      counts_of(shapes, attention_options(call.options_as<flash_mla_options>()));
  work.visible_pairs = counts.visible_pairs;
  work.flops = counts.flops + 2.0 * static_cast<double>(entries * length * kv_heads) *
                                  static_cast<double>(given.ckv.extent[2]) *
                                  static_cast<double>(nope + value);
}

/// Three products of a key's width and two of a value's, and those of the expansion three times.
void count_backward(const bound_call& call, call_work& work) {
  call_work forward;
  count(call, forward);
  work.visible_pairs = forward.visible_pairs;
  work.flops = 3.0 * forward.flops;
}

/// Heads, but not where random numbers count them.
std::span<const std::string_view> independent(const bound_call& call) {
  if (call.options_as<flash_mla_options>().dropout_probability > 0) return {};
  static constexpr std::array<std::string_view, 2> heads{"Hq", "Hkv"};
  return heads;
}

constexpr std::array<std::string_view, 2> residuals{"out", "lse"};
constexpr std::array table{operation_reference{.op = "flash_mla",
                                               .exact = &evaluated<exact>,
                                               .as_stored = &evaluated<as_stored>,
                                               .fill = &fill,
                                               .mark_seen = &mark_seen,
                                               .row_extent = &dense_row_extent,
                                               .independent = &independent,
                                               .count = &count},
                           operation_reference{.op = "flash_mla_backward",
                                               .exact = &evaluated_gradients<exact>,
                                               .as_stored = &evaluated_gradients<as_stored>,
                                               .fill = &fill,
                                               .residuals = residuals,
                                               .residuals_of = "flash_mla",
                                               .mark_seen = &mark_seen_backward,
                                               .independent = &independent,
                                               .count = &count_backward}};

}  // namespace

std::span<const operation_reference> latent_attention_references() noexcept {
  return table;
}

}  // namespace tessera::reference
