// What the kernels of latent attention receive: raw pointers, element strides and scalars of one
// launch. Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A tensor of rows whose elements are side by side, with a row for each of these as far as it has
/// them: entry (batch entry, or page of a pool), token (or latent column, of weights), and head.
/// Null: absent.
struct latent_rows {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t entry = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;

  constexpr std::int64_t at(std::int64_t of_entry, std::int64_t of_token,
                            std::int64_t of_head = 0) const noexcept {
    return of_entry * entry + of_token * token + of_head * head;
  }
};

/// Where the latents of a sequence lie: token j in slot j % page_size of page
/// numbers[sequence * row + j / page_size]; slot u of a page in lane u % lanes of its group
/// u / lanes.
struct latent_pages {
  const std::int32_t* numbers = nullptr;
  std::int64_t row = 0;
  std::int64_t page_size = 0;
  std::int64_t lanes = 1;
  std::int64_t page_count = 0;  ///< of the pool
  std::int64_t most_pages = 0;  ///< of a sequence
};

/// A number of a key for each slot of a token, -1 for none. Null: absent.
struct key_slots {
  std::int32_t* data = nullptr;
  std::int64_t entry = 0;
  std::int64_t token = 0;
  std::int64_t slot = 0;

  constexpr std::int32_t* at(std::int64_t of_entry, std::int64_t of_token) const noexcept {
    return data + of_entry * entry + of_token * token;
  }
};

/// What says which keys a token sees: a list that is given, or the score of each key,
///
///   k_scale * sum over heads j of q_scale[j] weights[j] relu(sign * q[j] k)
///
/// of which the largest are kept. A positive factor of all products changes no order, so none is
/// here. A product that is NaN counts as 0, a score that is NaN is the least there is.
struct key_indexer {
  latent_rows q{}, k{};
  latent_rows weights{};  ///< a row of heads for each token
  latent_rows q_scale{};  ///< f32, of each token and head; null: 1
  latent_rows k_scale{};  ///< f32, of each token; null: 1
  key_slots given{};
  key_slots selected{};  ///< where the kept keys are written, if it is not null
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t slots = 0;  ///< of a list
  std::int64_t topk = 0;   ///< keys kept by their scores
  float sign = 1;
  bool force_self = false;  ///< a token's own key is kept besides
};

/// The keys of each token of a launch, ascending, in the workspace. Null: there are no lists.
struct key_lists {
  std::int32_t* keys = nullptr;
  std::int32_t* counts = nullptr;
  std::int64_t slots = 0;
};

/// Arguments of one launch. `ckv` and `k_pe` of latents in pages have a row for each page, group of
/// slots and lane of a group.
struct latent_attention_kernel_args {
  latent_rows q{};           ///< what meets keys made of latents, or latents
  latent_rows q_pe{};        ///< what meets `k_pe`
  bool shared_rope = false;  ///< all heads have the same q_pe
  latent_rows ckv{}, k_pe{};
  latent_rows ckv_scale{};       ///< f32: factors of columns of a latent; null: 1
  std::int64_t scale_width = 1;  ///< columns that have the same
  latent_rows w_kc{}, w_vc{};    ///< expanded: a row for each latent column and key/value head
  latent_rows out{};
  row_statistics lse{};
  score_tensor bias{}, mask{};  ///< behind the soft cap; nonzero is visible
  const float* sinks = nullptr;
  std::int64_t sink_head_stride = 0, sink_stride = 0;
  std::int64_t sink_count = 0;

  key_indexer indexer{};                       ///< selected
  key_lists lists{};                           ///< what comes of it; set by the launch itself
  latent_pages pages{};                        ///< absorbed
  latent_rows ckv_new{}, k_pe_new{};           ///< written to the pages of their sequences first
  const std::int32_t* cu_seqlens_q = nullptr;  ///< packed: rows of sequences; contiguous
  const std::int32_t* seqlens_k = nullptr;     ///< latents of a sequence; contiguous
  const std::int32_t* num_seqs = nullptr;      ///< sequences in use; null: all

  latent_rows d_out{};
  row_statistics d_lse{};
  latent_rows d_q{}, d_q_pe{}, d_ckv{}, d_k_pe{}, d_w_kc{}, d_w_vc{};
  score_gradient d_bias{};
  float* d_sinks = nullptr;
  std::int64_t d_sink_head_stride = 0, d_sink_stride = 0;
  std::int64_t d_sink_heads = 0;  ///< rows of d_sinks: one for all heads, or one for each

  std::int64_t entries = 0;  ///< batch entries, or sequences
  std::int64_t length = 0;   ///< tokens of an entry; packed: of all sequences
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t latent = 0;  ///< columns of ckv
  std::int64_t nope = 0;    ///< columns of q
  std::int64_t rope = 0;    ///< columns of q_pe and k_pe
  std::int64_t value = 0;   ///< columns of out

  float softmax_scale = 1;
  float out_factor = 1;  ///< multiplies finished rows: the scale of v, 1 / (1 - p) of dropout
  float soft_cap = 0;    ///< 0: off
  bool causal = false;
  std::int64_t window_left = unbounded, window_right = unbounded;
  bool dropout = false;                 ///< of expanded latents
  std::uint64_t dropout_threshold = 0;  ///< kept iff word >= threshold; at most 2^32
  std::uint64_t dropout_seed = 0;

  /// Whether latents are floats as they lie: neither codes nor times factors.
  constexpr bool has_plain_latents() const noexcept {
    return is_floating_16_or_32(ckv.type) && ckv_scale.data == nullptr;
  }
};

}  // namespace tessera
