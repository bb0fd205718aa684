// Random calls drawn from a declaration alone, of an operation that uses what no operation of the
// library has together: pages, sums of groups, tensors that are written in place.
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/spec/lower.hpp>

#include "cache_operation.hpp"
#include "paged_operation.hpp"
#include "tests/support/call_data.hpp"
#include "tests/support/call_mutations.hpp"

namespace tessera::testing {
namespace {

using support::call_data;
using support::drawn_call;
using support::random_source;

/// What draws of an operation have reached.
struct reached {
  std::set<std::string_view> traits, empty_dims;
  std::set<int> layouts;
  std::set<bool> poisoned;
};

template <class Look>
reached draw(const operation& op, const Look& look) {
  reached seen;
  for (std::uint64_t index = 0; index < 600; ++index) {
    SCOPED_TRACE(index);
    random_source random = support::stream(3, index);
    const std::unique_ptr<call_data> data = drawn_call(op, random);
    EXPECT_NE(data, nullptr);
    if (data == nullptr) return seen;
    EXPECT_TRUE(data->refusal()) << data->text() << ": " << data->refusal().message();
    EXPECT_TRUE(data->outputs_untouched() && data->intact());
    const bound_call& call = data->call();
    seen.layouts.insert(call.layout);
    for (const support::call_trait& trait : support::traits_of(op)) {
      const bool has = trait.is_option ? !text::is_default(op.form->options[trait.index], *op.form,
                                                           data->options())
                                       : call.has(trait.index);
      if (has) seen.traits.insert(support::name_of(op, trait));
    }
    for (std::size_t i = 0; i < op.form->dims.size(); ++i) {
      if (call.owners[i] >= 0 && call.dims[i] == 0) seen.empty_dims.insert(op.form->dims[i].symbol);
    }
    look(*data);
    if (::testing::Test::HasFailure()) return seen;
  }
  return seen;
}

TEST(RandomCalls, ReachEveryTensorOptionLayoutAndEmptyDim) {
  const reached seen = draw(cache_table::operations[0], [](const call_data&) {});
  EXPECT_EQ(seen.traits.size(), support::traits_of(cache_table::operations[0]).size());
  EXPECT_EQ(seen.layouts, (std::set<int>{0, 1, 7}));
  for (const std::string_view dim : {"R", "N", "M", "S"})
    EXPECT_TRUE(seen.empty_dims.contains(dim)) << dim;
}

TEST(RandomCalls, OfTheSameSeedAreTheSame) {
  for (const operation& op : cache_table::operations) {
    random_source first = support::stream(4, 1), second = support::stream(4, 1);
    const auto a = drawn_call(op, first), b = drawn_call(op, second);
    EXPECT_EQ(a->text(), b->text());
    EXPECT_EQ(first.bits(), second.bits());
  }
}

TEST(RandomCalls, WriteInPlaceAndShareMemory) {
  bool shared = false, apart = false;
  draw(cache_table::operations[0], [&](call_data& data) {
    const auto& args = *reinterpret_cast<const cache_args*>(data.tensors());
    if (!args.updated.present() || args.updated.elements() == 0) return;
    (args.updated.data == args.tokens.data ? shared : apart) = true;
    *static_cast<std::byte*>(args.updated.data) ^= std::byte{1};
    EXPECT_FALSE(data.outputs_untouched());
    EXPECT_TRUE(data.intact()) << "an element of an output";
    data.reset();
    EXPECT_TRUE(data.outputs_untouched());
  });
  EXPECT_TRUE(shared && apart);
}

/// Every slot of a pool that some sequence uses, as [page][token].
std::vector<std::vector<bool>> used_slots(const paged_args& args, std::int64_t pages,
                                          std::int64_t page_size) {
  std::vector<std::vector<bool>> used(static_cast<std::size_t>(pages));
  for (auto& tokens : used) tokens.resize(static_cast<std::size_t>(page_size));
  for (std::int64_t n = 0; n < args.block_table.extent[0]; ++n) {
    const auto length = static_cast<std::int64_t>(reference::at(args.seqlens_k, n));
    for (std::int64_t j = 0; j < length; ++j) {
      const double page = reference::at(args.block_table, n, j / page_size);
      auto slot = used[static_cast<std::size_t>(page)].begin() + j % page_size;
      EXPECT_FALSE(*slot) << "two tokens in one slot";
      *slot = true;
    }
  }
  return used;
}

TEST(RandomCalls, HavePagesOfTheirOwnAndPoisonInEverySlotThatNobodyUses) {
  int used_numbers = 0, unused_numbers = 0, hostile_entries = 0;
  const reached seen = draw(paged_table::operations[0], [&](const call_data& data) {
    const auto& args = *reinterpret_cast<const paged_args*>(data.tensors());
    const bool heads_last = data.call().layout == 1;
    const std::int64_t pages = args.k_pages.extent[0];
    const std::int64_t page_size = args.k_pages.extent[heads_last ? 1 : 2];
    const auto used = used_slots(args, pages, page_size);
    reference::for_each_element(args.k_pages, [&](std::int64_t flat, std::int64_t offset) {
      std::int64_t rest = flat / args.k_pages.extent[3];
      const std::int64_t inner = rest % args.k_pages.extent[2];
      rest /= args.k_pages.extent[2];
      const std::int64_t token = heads_last ? rest % args.k_pages.extent[1] : inner;
      const std::int64_t page = rest / args.k_pages.extent[1];
      const bool is_used = used[static_cast<std::size_t>(page)][static_cast<std::size_t>(token)];
      const bool finite = std::isfinite(reference::read(args.k_pages, offset));
      const bool shares =
          args.k_pages.stride[0] == 0 || args.k_pages.stride[1] == 0 || args.k_pages.stride[2] == 0;
      EXPECT_TRUE(is_used ? finite : !finite || shares);
      ++(is_used ? used_numbers : unused_numbers);
    });
    for (const double entry : reference::to_doubles(args.block_table)) {
      hostile_entries += entry < 0 || entry >= static_cast<double>(pages);
    }
  });
  EXPECT_EQ(seen.layouts, (std::set<int>{0, 1}));
  EXPECT_GT(used_numbers, 1000);
  EXPECT_GT(unused_numbers, 1000);
  EXPECT_GT(hostile_entries, 100);
}

TEST(RandomCalls, HaveMutationsThatAreRefused) {
  for (const operation* op : {&cache_table::operations[0], &paged_table::operations[0]}) {
    int refused = 0;
    draw(*op, [&](call_data& data) {
      for (const support::call_mutation& mutation : support::mutations_of(data)) {
        owned_problem changed = data.owned();
        mutation.apply(changed);
        const status done = support::checked(changed);
        EXPECT_TRUE(done || done.message().find(": ") != std::string::npos) << mutation.what;
        refused += done ? 0 : 1;
        data.reset();
      }
      EXPECT_TRUE(data.outputs_untouched() && data.intact());
    });
    EXPECT_GT(refused, 10000);
  }
}

}  // namespace
}  // namespace tessera::testing
