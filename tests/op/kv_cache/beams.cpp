// Beam search over pages: beams share the full pages of their past and copy the one that they go on
// writing. Whatever was copied and freed meanwhile, each has the bits of a sequence of its own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kv_cache.hpp>
#include <tessera/page_attention.hpp>

#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t beams = 4, steps = 37, q_heads = 4, kv_heads = 2, head_dim = 24;
constexpr std::int64_t token = kv_heads * head_dim, q_token = q_heads * head_dim;

template <class Element>
constexpr bool has_scales = std::is_same_v<Element, std::int8_t>;

/// Keys and values of tokens, as numbers.
struct history {
  std::vector<float> k, v;
};

/// A pool of pages of codes or numbers, with a scale for each token and head where it holds codes.
template <class Element>
class page_pool {
 public:
  page_pool(std::int64_t pages, std::int64_t page_size)
      : pages_(pages), page_size_(page_size), slots_(pages * page_size) {
    const auto count = static_cast<std::size_t>(slots_);
    k_.resize(count * token), v_.resize(count * token);
    k_scales_.resize(count * kv_heads), v_scales_.resize(count * kv_heads);
    for (std::int64_t page = 0; page < pages; ++page) poison(page);
  }

  kv_cache_args cache() {
    kv_cache_args args{.k_pages = pool(k_, head_dim), .v_pages = pool(v_, head_dim)};
    if (has_scales<Element>) {
      args.k_token_scales = scales(k_scales_);
      args.v_token_scales = scales(v_scales_);
    }
    return args;
  }
  page_attention_args attention() {
    const kv_cache_args args = cache();
    return {.k_pages = args.k_pages,
            .v_pages = args.v_pages,
            .k_token_scales = args.k_token_scales,
            .v_token_scales = args.v_token_scales};
  }
  /// The tensors that hold something of a page, in pairs that kv_cache_copy takes.
  std::vector<kv_cache_args> tensors() {
    std::vector<kv_cache_args> all{{.k_pages = pool(k_, head_dim), .v_pages = pool(v_, head_dim)}};
    if (has_scales<Element>) {
      all.push_back({.k_pages = pool(k_scales_, 1), .v_pages = pool(v_scales_, 1)});
    }
    return all;
  }
  /// What nobody may see.
  void poison(std::int64_t page) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const Element anything = has_scales<Element> ? Element{127} : static_cast<Element>(nan);
    const auto fill = [&](auto& memory, std::int64_t row, auto value) {
      const std::int64_t count = page_size_ * row;
      std::fill_n(memory.begin() + page * count, count, value);
    };
    fill(k_, token, anything), fill(v_, token, anything);
    fill(k_scales_, kv_heads, nan), fill(v_scales_, kv_heads, nan);
  }

 private:
  template <class Number>
  tensor_view pool(std::vector<Number>& memory, std::int64_t columns) const {
    return view(memory.data(), {pages_, page_size_, kv_heads, columns});
  }
  tensor_view scales(std::vector<float>& memory) const {
    return view(memory.data(), {pages_, page_size_, kv_heads});
  }

  std::int64_t pages_, page_size_, slots_;
  std::vector<Element> k_, v_;
  std::vector<float> k_scales_, v_scales_;
};

/// Which pages are in use, by how many beams.
class page_counts {
 public:
  explicit page_counts(std::int64_t pages) : users_(static_cast<std::size_t>(pages)) {}
  /// A page that nobody uses: not the first one, so that order means nothing.
  std::int32_t take(random_source& random) {
    for (;;) {
      const auto page =
          static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(users_.size()) - 1));
      if (users_[page] != 0) continue;
      users_[page] = 1;
      return static_cast<std::int32_t>(page);
    }
  }
  void share(std::int32_t page) { ++users_[static_cast<std::size_t>(page)]; }
  /// Whether nobody is left.
  bool leave(std::int32_t page) { return --users_[static_cast<std::size_t>(page)] == 0; }

 private:
  std::vector<int> users_;
};

/// Tables of all beams, `columns` entries each; entries behind the last page are of no page.
std::vector<std::int32_t> table_of(const std::vector<std::vector<std::int32_t>>& pages,
                                   std::int64_t columns) {
  std::vector<std::int32_t> table(static_cast<std::size_t>(beams * columns), -1);
  for (std::size_t beam = 0; beam < pages.size(); ++beam) {
    std::ranges::copy(pages[beam], table.begin() + static_cast<std::int64_t>(beam) * columns);
  }
  return table;
}

template <class Element>
class beam_search {
 public:
  explicit beam_search(std::int64_t page_size)
      : page_size_(page_size),
        columns_((steps + page_size - 1) / page_size),
        pages_(2 * beams * columns_ + beams),
        pool_(pages_, page_size),
        counts_(pages_) {}

  void run() {
    for (std::int32_t length = 1; length <= steps; ++length) {
      if (length > 1) choose_parents(length - 1);
      append_tokens(length);
      const std::vector<float> q = numbers(beams * q_token);
      EXPECT_EQ(attended(pool_, table_of(pages_of_beam_, columns_), q, length),
                attended_alone(q, length))
          << "after " << length << " tokens, pages of " << page_size_;
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = random_.bell();
    return values;
  }

  /// Each beam goes on with the past of one of them.
  void choose_parents(std::int32_t length) {
    const bool partial = length % page_size_ != 0;
    std::vector<std::int32_t> sources, targets;
    std::vector<std::vector<std::int32_t>> pages;
    std::vector<history> past;
    for (std::int64_t beam = 0; beam < beams; ++beam) {
      const auto parent = static_cast<std::size_t>(random_.between(0, beams - 1));
      std::vector<std::int32_t> own = pages_of_beam_[parent];
      if (partial) {
        sources.push_back(own.back());
        own.back() = counts_.take(random_);
        targets.push_back(own.back());
      }
      const std::size_t shared = own.size() - (partial ? 1 : 0);
      for (std::size_t i = 0; i < shared; ++i) counts_.share(own[i]);
      pages.push_back(own);
      past.push_back(past_[parent]);
    }
    copy_pages(sources, targets);
    for (const auto& list : pages_of_beam_) {
      for (const std::int32_t page : list) {
        if (counts_.leave(page)) pool_.poison(page);
      }
    }
    pages_of_beam_ = pages;
    past_ = past;
  }

  void copy_pages(const std::vector<std::int32_t>& sources,
                  const std::vector<std::int32_t>& targets) {
    const auto count = static_cast<std::int64_t>(sources.size());
    for (kv_cache_args args : pool_.tensors()) {
      args.source_pages = view(sources.data(), {count});
      args.target_pages = view(targets.data(), {count});
      const status done = kv_cache_copy(args, {.pool_layout = cache_layout::PTHD});
      ASSERT_TRUE(done) << done.message();
    }
  }

  /// A token of each beam, which then has `length`.
  void append_tokens(std::int32_t length) {
    const std::vector<float> k = numbers(beams * token), v = numbers(beams * token);
    past_.resize(beams), pages_of_beam_.resize(beams);
    for (std::int64_t beam = 0; beam < beams; ++beam) {
      const auto number = static_cast<std::size_t>(beam);
      if ((length - 1) % page_size_ == 0) {
        pages_of_beam_[number].push_back(counts_.take(random_));
      }
      const auto row = beam * token;
      past_[number].k.insert(past_[number].k.end(), k.begin() + row, k.begin() + row + token);
      past_[number].v.insert(past_[number].v.end(), v.begin() + row, v.begin() + row + token);
    }
    const std::vector<std::int32_t> table = table_of(pages_of_beam_, columns_);
    const std::vector<std::int32_t> lengths(beams, length);
    kv_cache_args args = pool_.cache();
    args.k_new = view(k.data(), {beams, kv_heads, head_dim});
    args.v_new = view(v.data(), {beams, kv_heads, head_dim});
    args.block_table = view(table.data(), {beams, columns_});
    args.seqlens_k = view(lengths.data(), {beams});
    const status done = kv_cache_append(args, {.pool_layout = cache_layout::PTHD});
    ASSERT_TRUE(done) << done.message();
  }

  static std::vector<float> attended(page_pool<Element>& pool,
                                     const std::vector<std::int32_t>& table,
                                     const std::vector<float>& q, std::int32_t length) {
    const std::vector<std::int32_t> lengths(beams, length);
    std::vector<float> out(q.size(), -1.0f);
    page_attention_args args = pool.attention();
    args.q = view(q.data(), {beams, q_heads, head_dim});
    args.block_table = view(table.data(), {beams, static_cast<std::int64_t>(table.size()) / beams});
    args.seqlens_k = view(lengths.data(), {beams});
    args.out = view(out.data(), {beams, q_heads, head_dim});
    const status done = page_attention(args, {.pool_layout = page_layout::PTHD});
    EXPECT_TRUE(done) << done.message();
    return out;
  }

  /// The same of sequences that were written at once, into pages of their own.
  std::vector<float> attended_alone(const std::vector<float>& q, std::int32_t length) const {
    page_pool<Element> own(beams * columns_, page_size_);
    std::vector<std::int32_t> table, offsets{0};
    history all;
    for (std::int32_t beam = 0; beam < beams; ++beam) {
      const history& past = past_[static_cast<std::size_t>(beam)];
      all.k.insert(all.k.end(), past.k.begin(), past.k.end());
      all.v.insert(all.v.end(), past.v.begin(), past.v.end());
      offsets.push_back(offsets.back() + length);
      for (std::int64_t m = 0; m < columns_; ++m) {
        table.push_back(static_cast<std::int32_t>(beam * columns_ + m));
      }
    }
    const std::vector<std::int32_t> lengths(beams, length);
    kv_cache_args args = own.cache();
    args.k_new = view(all.k.data(), {beams * length, kv_heads, head_dim});
    args.v_new = view(all.v.data(), {beams * length, kv_heads, head_dim});
    args.block_table = view(table.data(), {beams, columns_});
    args.seqlens_k = view(lengths.data(), {beams});
    args.cu_seqlens_q = view(offsets.data(), {beams + 1});
    const status done = kv_cache_append(args, {.pool_layout = cache_layout::PTHD});
    EXPECT_TRUE(done) << done.message();
    const std::vector<float> out = attended(own, table, q, length);
    for (const float value : out) EXPECT_TRUE(std::isfinite(value));
    return out;
  }

  std::int64_t page_size_, columns_, pages_;
  page_pool<Element> pool_;
  page_counts counts_;
  random_source random_{7};
  std::vector<std::vector<std::int32_t>> pages_of_beam_;
  std::vector<history> past_;
};

TEST(beams, have_the_bits_of_sequences_of_their_own) {
  for (const std::int64_t page_size : {1, 3, 16, 256}) beam_search<float>(page_size).run();
}

TEST(beams, copy_the_scales_of_their_tokens_too) {
  for (const std::int64_t page_size : {1, 3, 16, 256}) beam_search<std::int8_t>(page_size).run();
}

}  // namespace
}  // namespace tessera::support
