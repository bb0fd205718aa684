// Attention, or its gradient, on selected keys: the lists are made first, then each token sees what
// is in its own.
#pragma once

#include <algorithm>
#include <cstddef>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/cpu/key_selection.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// `Attention` is a launch on expanded latents.
template <class Kernel, class Attention>
class selected {
 public:
  explicit selected(const latent_attention_kernel_args& args) : args_(args), selection_(args) {}

  std::size_t workspace_bytes(int threads) const {
    return selection_.list_bytes() +
           std::max(selection_.workspace_bytes(threads), Attention(args_).workspace_bytes(threads));
  }

  void run(std::byte* workspace, int threads) const {
    std::byte* const behind_lists = workspace + selection_.list_bytes();
    latent_attention_kernel_args with_lists = args_;
    with_lists.lists = selection_.run(workspace, behind_lists, threads);
    Attention(with_lists).run(behind_lists, threads);
  }

 private:
  const latent_attention_kernel_args& args_;
  key_selection<Kernel> selection_;
};

}  // namespace tessera::kernels::latent_attention::cpu
