// Random batches of every operation over pages, by the library's choice and by each row: mixed
// prompts and single tokens, sequences of no keys, tables that end in numbers of no page, shared
// prefixes, pages of 1 to 256 tokens, every layout and type of a pool, every option. Settings as in
// support/fuzz.hpp.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/spec/option_text.hpp>

#include "tests/support/call_numbers.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/fuzz.hpp"
#include "tests/support/fuzz_call.hpp"

namespace tessera::support {
namespace {

/// A row that runs batches of an operation here, and the type of a query that it takes.
struct paged_row {
  tested_row tested;
  dtype type = dtype::none;
};

struct paged_operation {
  tested_operation tested;
  std::size_t table = 0;  ///< its tensor of page numbers
  std::vector<paged_row> rows{};
};

std::vector<paged_operation> paged_operations() {
  std::vector<paged_operation> all;
  for (const tested_operation& tested : tested_operations()) {
    const signature& form = *tested.op->form;
    const auto table = std::ranges::find(form.tensors, tensor_contents::page_numbers,
                                         [](const tensor_form& tensor) { return tensor.holds; });
    if (table == form.tensors.end() || !why_not_here(*tested.kind).empty()) continue;
    paged_operation found{tested, static_cast<std::size_t>(table - form.tensors.begin())};
    for (const tested_row& row : tested_rows()) {
      random_source random(5);
      const call_wishes plain{.density = 0.0, .attempts = 200, .kind = row.kind, .row = row.row};
      if (row.kind != tested.kind || !runs_here(row.row->target)) continue;
      const std::optional<owned_problem> problem = drawn_problem(*tested.op, random, plain);
      if (problem) found.rows.push_back({row, problem->tensors[tested.op->order[0]].type});
    }
    all.push_back(std::move(found));
  }
  return all;
}

/// Half of the batches have several sequences and more tokens than these, a third pages of a usual
/// size: drawn by chance alone, few would.
call_wishes wishes_for(const paged_operation& drawn, random_source& random) {
  const signature& form = *drawn.tested.op->form;
  const tensor_form& table = form.tensors[drawn.table];
  call_wishes wishes{.work = random.chance(0.1) ? 2e4 : 2e3, .attempts = 300};
  const auto fix = [&wishes](std::int8_t dim, std::int64_t extent) {
    if (dim >= 0) wishes.extents[static_cast<std::size_t>(dim)] = extent;
  };
  if (random.chance(0.35)) {
    const auto page = random.pick<std::int64_t>({1, 2, 16, 32, 64, 128, 256});
    fix(table.page, page);
    if (page > 32) wishes.work = 2e4;
  }
  const std::int8_t covers = form.tensors[static_cast<std::size_t>(table.used_by)].covers;
  if (random.chance(0.5) && covers >= 0) {
    const std::int64_t sequences = random.between(2, 5);
    fix(form.shape(drawn.table, 0).axes[0].dim, sequences);
    fix(form.tensors[static_cast<std::size_t>(covers)].counts, random.between(1, 3) * sequences);
  }
  return wishes;
}

/// What the batches were like so far, in words.
class seen_batches {
 public:
  void add(const call_data& data, std::size_t table) {
    const bound_call& call = data.call();
    const signature& form = call.form();
    const std::string layout(form.layouts[static_cast<std::size_t>(call.layout)]);
    for (const call_trait& trait : traits_of(*call.op)) {
      const bool has = trait.is_option
                           ? !text::is_default(form.options[trait.index], form, call.options)
                           : call.has(trait.index);
      if (has) note(call, " with ", name_of(*call.op, trait));
    }
    if (!call.has(table)) return;
    for (std::size_t i = 0; i < form.tensors.size(); ++i) {
      if (!call.has(i) || !is_pool(form, i, call.layout)) continue;
      note(call, " of ", pool_words(layout, form.tensors[i].name, call.tensors[i].type));
    }
    page_sizes_.insert(dim_of(call, form.tensors[table].page));
    add_sequences(call, static_cast<std::size_t>(form.tensors[table].used_by));
  }

  bool has(const std::string& words) const { return seen_.contains(words); }
  /// Every pool of an operation, in every layout and of every type that it may have.
  void expect_all_pools(const operation& op) const {
    const signature& form = *op.form;
    for (int at = 0; at < op.tensor_count; ++at) {
      const std::size_t tensor = op.order[static_cast<std::size_t>(at)];
      for (std::size_t layout = 0; layout < form.layouts.size(); ++layout) {
        if (!is_pool(form, tensor, static_cast<int>(layout))) continue;
        if (op.name == "ragged_page_attention_v2" && form.layouts[layout] != "PTCD") continue;
        for (std::size_t type = 0; type < dtype_names.size(); ++type) {
          if (!form.tensors[tensor].types.has(static_cast<dtype>(type))) continue;
          const std::string words =
              std::string(op.name) + " of " +
              pool_words(form.layouts[layout], form.tensors[tensor].name, static_cast<dtype>(type));
          EXPECT_TRUE(has(words)) << words;
        }
      }
    }
  }
  const std::set<std::int64_t>& page_sizes() const { return page_sizes_; }
  int empty_sequences() const { return empty_; }
  int mixed_batches() const { return mixed_; }

 private:
  void note(const bound_call& call, std::string_view joint, std::string_view what) {
    seen_.insert(std::string(call.op->name) + std::string(joint) + std::string(what));
  }
  /// Keys and values have one pool, kv_pages, in the layouts of channels, and else two.
  static bool is_pool(const signature& form, std::size_t tensor, int layout) {
    const tensor_form& named = form.tensors[tensor];
    if (named.holds != tensor_contents::values || !named.name.ends_with("_pages")) return false;
    const bool has_channels = form.layouts[static_cast<std::size_t>(layout)].starts_with("PTC");
    return form.layouts.size() == 1 || has_channels == (named.name == "kv_pages");
  }
  static std::string pool_words(std::string_view layout, std::string_view tensor, dtype type) {
    return std::string(layout) + ", " + std::string(tensor) + " of " +
           std::string(dtype_names[static_cast<std::size_t>(type)]);
  }
  void add_sequences(const bound_call& call, std::size_t lengths) {
    if (!call.has(lengths)) return;
    for (const std::int64_t length : used_numbers_in(call, lengths)) empty_ += length == 0 ? 1 : 0;
    const std::int8_t covers = call.form().tensors[lengths].covers;
    if (covers < 0 || !call.has(static_cast<std::size_t>(covers))) return;
    const std::vector<std::int64_t> offsets =
        used_numbers_in(call, static_cast<std::size_t>(covers));
    bool single = false, several = false;
    for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
      single = single || offsets[n + 1] - offsets[n] == 1;
      several = several || offsets[n + 1] - offsets[n] > 1;
    }
    mixed_ += single && several ? 1 : 0;
  }

  std::set<std::string> seen_;
  std::set<std::int64_t> page_sizes_;
  int empty_ = 0, mixed_ = 0;
};

/// The layout of the one pool that an operation takes.
bool trait_has_one_value(const operation& op, const call_trait& trait) {
  return op.name == "ragged_page_attention_v2" && name_of(op, trait) == "pool_layout";
}

TEST(fuzz_pages, every_batch_is_right) {
  const std::vector<paged_operation> all = paged_operations();
  ASSERT_FALSE(all.empty());
  seen_batches seen;
  fuzz_tally total;
  run_fuzz(
      [&](random_source& random, fuzz_tally& counts) {
        const paged_operation& drawn = random.pick(std::span(all));
        const family& kind = *drawn.tested.kind;
        call_wishes wishes = wishes_for(drawn, random);
        std::unique_ptr<call_data> data;
        const instance* row = nullptr;
        if (!drawn.rows.empty() && random.chance(0.6)) {
          const paged_row& named = random.pick(std::span(drawn.rows));
          wishes.type = named.type;
          data = call_for(named.tested, *drawn.tested.op, random, wishes);
          row = data != nullptr ? named.tested.row : nullptr;
          wishes.type = dtype::none;
        }
        const memory_wishes memory{.aligned = random.chance(0.5)};
        if (data == nullptr) data = call_here_for(drawn.tested, random, wishes, memory);
        // Not every row has room for the extents that are wished for.
        if (data == nullptr) data = call_here_for(drawn.tested, random, {.work = 2e4}, memory);
        ASSERT_NE(data, nullptr) << drawn.tested.op->name << ": no legal call is drawn";
        check_legal_call(kind, *data, row, random, counts);
        ASSERT_TRUE(data->intact()) << "bytes outside the outputs were written";
        seen.add(*data, drawn.table);
        total = counts;
      },
      {.count = 300, .has_illegal = false});
  if (total.right < 10000) return;  // few batches need not have everything
  EXPECT_EQ(*seen.page_sizes().lower_bound(1), 1);
  EXPECT_TRUE(seen.page_sizes().contains(16) && seen.page_sizes().contains(256));
  EXPECT_GT(seen.empty_sequences(), 1000);
  EXPECT_GT(seen.mixed_batches(), 1000);
  for (const paged_operation& drawn : all) {
    const operation& op = *drawn.tested.op;
    seen.expect_all_pools(op);
    for (const call_trait& trait : traits_of(op)) {
      const std::string words = std::string(op.name) + " with " + std::string(name_of(op, trait));
      EXPECT_TRUE(trait_has_one_value(op, trait) || seen.has(words)) << words;
    }
  }
}

}  // namespace
}  // namespace tessera::support
