// The gradients of flash_mla: those of the attention call that it stands for, led back through the
// products that make keys and values of latents.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/latent_attention/flash_mla_args.hpp>
#include <tessera/families/latent_attention/flash_mla_options.hpp>

#include "attention_backward.hpp"
#include "elements.hpp"
#include "expanded_latents.hpp"

namespace tessera::reference {

template <class Precision>
class latent_gradients {
  using real = typename Precision::real;

 public:
  latent_gradients(const flash_mla_args& args, const flash_mla_options& options)
      : given_(args), expanded_(args) {
    const flash_attention_args& forward = expanded_.args();
    attention_backward_args same{.q = forward.q,
                                 .k = forward.k,
                                 .v = forward.v,
                                 .bias_post = args.bias_post,
                                 .mask = args.mask,
                                 .sinks = args.sinks,
                                 .out = args.out,
                                 .lse = args.lse,
                                 .d_out = args.d_out,
                                 .d_lse = args.d_lse,
                                 .d_q = forward.q,
                                 .d_k = forward.k,
                                 .d_v = forward.v,
                                 .d_bias_post = args.d_bias_post,
                                 .d_sinks = args.d_sinks};
    backward_evaluation<Precision> evaluation(same, attention_options(options));
    found_ = std::move(evaluation.result());
    lead_back_queries();
    lead_back_keys();
  }

  /// Every gradient and its name; of absent tensors too.
  std::array<std::pair<std::string_view, const gradient*>, 8> named() const {
    return {{{"d_ckv", &d_ckv_},
             {"d_w_kc", &d_w_kc_},
             {"d_w_vc", &d_w_vc_},
             {"d_k_pe", &d_k_pe_},
             {"d_q_pe", &d_q_pe_},
             {"d_q", &d_q_},
             {"d_bias_post", &found_.d_bias_post},
             {"d_sinks", &found_.d_sinks}}};
  }

 private:
  void round(gradient& to, dtype type) {
    for (double& value : to.values) {
      value = static_cast<double>(Precision::rounded(type, static_cast<real>(value)));
    }
  }

  void lead_back_queries() {
    const std::int64_t own = given_.q.extent[3], heads = given_.q.extent[2];
    const std::int64_t width = expanded_.nope() + expanded_.rope();
    d_q_.make(given_.q.elements());
    d_q_pe_.make(given_.q_pe.present() ? given_.q_pe.elements() : 0);
    const gradient& from = found_.d_q;
    for (std::size_t at = 0; at < from.values.size(); ++at) {
      const auto place = static_cast<std::int64_t>(at);
      const std::int64_t row = place / width, d = place % width;
      if (d < own) {
        d_q_.add(row * own + d, from.values[at], from.sizes[at], from.logits[at]);
      } else {
        d_q_pe_.add(row / heads * expanded_.rope() + d - own, from.values[at], from.sizes[at],
                    from.logits[at]);
      }
    }
    round(d_q_, given_.q.type);
    round(d_q_pe_, given_.q.type);
  }

  void lead_back_keys() {
    d_ckv_.make(given_.ckv.elements());
    d_w_kc_.make(given_.w_kc.elements());
    d_w_vc_.make(given_.w_vc.elements());
    d_k_pe_.make(given_.k_pe.present() ? given_.k_pe.elements() : 0);
    const std::int64_t heads = given_.w_kc.extent[1], rope = expanded_.rope();
    const std::int64_t nope = expanded_.nope(), value = given_.w_vc.extent[2];
    const std::int64_t tokens = given_.ckv.extent[0] * given_.ckv.extent[1];
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t g = 0; g < heads; ++g) {
        const std::int64_t row = token * heads + g;
        for (std::int64_t d = 0; d < nope + rope; ++d) {
          const std::int64_t at = row * (nope + rope) + d;
          if (d < nope) {
            lead_back(found_.d_k, at, token, g, d, given_.w_kc, d_w_kc_);
          } else {
            const auto place = static_cast<std::size_t>(at);
            d_k_pe_.add(token * rope + d - nope, found_.d_k.values[place], found_.d_k.sizes[place],
                        found_.d_k.logits[place]);
          }
        }
        for (std::int64_t d = 0; d < value; ++d) {
          lead_back(found_.d_v, row * value + d, token, g, d, given_.w_vc, d_w_vc_);
        }
      }
    }
    for (gradient* const each : {&d_ckv_, &d_w_kc_, &d_w_vc_, &d_k_pe_}) {
      round(*each, given_.ckv.type);
    }
  }

  /// A key or value is a latent times weights: element `at` of its gradient is that of column d of
  /// head g of a token. Nothing comes from what nobody sees, whatever its tensors hold.
  void lead_back(const gradient& from, std::int64_t at, std::int64_t token, std::int64_t g,
                 std::int64_t d, const tensor_view& weights, gradient& d_weights) {
    const auto place = static_cast<std::size_t>(at);
    const auto into = static_cast<real>(from.values[place]);
    if (from.sizes[place] == 0.0 && into == real{0}) return;
    const tensor_view& latents = given_.ckv;
    const std::int64_t columns = latents.extent[2], length = latents.extent[1];
    for (std::int64_t r = 0; r < columns; ++r) {
      const double latent = read(
          latents, token / length * latents.stride[0] + token % length * latents.stride[1] + r);
      const double weight = read(weights, r * weights.stride[0] + g * weights.stride[1] + d);
      d_ckv_.add(token * columns + r, static_cast<double>(into * static_cast<real>(weight)),
                 from.sizes[place] * std::fabs(weight), from.logits[place]);
      d_weights.add((r * weights.extent[1] + g) * weights.extent[2] + d,
                    static_cast<double>(into * static_cast<real>(latent)),
                    from.sizes[place] * std::fabs(latent), from.logits[place]);
    }
  }

  const flash_mla_args& given_;
  expanded_latents<real> expanded_;
  backward_result found_;
  gradient d_ckv_, d_w_kc_, d_w_vc_, d_k_pe_, d_q_pe_, d_q_;
};

}  // namespace tessera::reference
