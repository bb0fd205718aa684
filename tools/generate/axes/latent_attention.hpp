// The default table of latent attention: which rows exist and why; see axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/latent_attention/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct latent_attention_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<latent_form> forms;
  std::vector<latent_pass> passes;
  std::vector<dtype> types{dtype::none};
};
BOOST_DESCRIBE_STRUCT(latent_attention_axes, (), (targets, forms, passes, types))

inline std::vector<latent_attention_axes> latent_attention_blocks() {
  using enum backend;
  using enum latent_form;
  using enum kernel_pass;
  return {
      {
          .about = "prompts: keys and values of each head are made once",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .forms = {expanded},
          .passes = {forward, backward},
      },
      {
          .about = "batches over caches: all heads read the same latents",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .forms = {absorbed},
          .passes = {forward},
      },
      {
          .about = "the same in products of pairs of bf16",
          .targets = {cpu_avx512_bf16, cpu_amx_bf16},
          .forms = {absorbed},
          .passes = {forward},
          .types = {dtype::bf16},
      },
      {
          .about = "prompts of which each token sees selected keys",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .forms = {selected},
          .passes = {forward, backward},
      },
      {
          .about = "sm80: prompts, of any type and size",
          .targets = {cuda_sm80},
          .forms = {expanded, selected},
          .passes = {forward, backward},
      },
      {
          .about = "sm80: batches over caches of any type and size",
          .targets = {cuda_sm80},
          .forms = {absorbed},
          .passes = {forward},
      },
      {
          .about = "the same on the matrix unit",
          .targets = {cuda_sm80, cuda_sm90},
          .forms = {absorbed},
          .passes = {forward},
          .types = {dtype::f16, dtype::bf16},
      },
      {
          .about = "prompts on the matrix unit, whose keys and values are tensors of bf16",
          .targets = {cuda_sm80, cuda_sm90},
          .forms = {expanded},
          .passes = {forward},
          .types = {dtype::bf16},
      },
      {
          .about = "the same of which each token sees selected keys",
          .targets = {cuda_sm80, cuda_sm90},
          .forms = {selected},
          .passes = {forward},
          .types = {dtype::bf16},
      },
  };
}

}  // namespace tessera::generate
