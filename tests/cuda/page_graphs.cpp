// Plans over pages that were captured into a CUDA graph serve what device memory says when the
// graph is replayed: other lengths, pages in another order, other values.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/config.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/spec/declaration_text.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/cuda/graph.hpp"
#include "tests/reference/operations.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"
#include "tests/support/test_name.hpp"

namespace tessera::device_test {
namespace {

using support::call_data;
using support::random_source;

/// The tensors of a call over pages by their names.
class paged_call {
 public:
  explicit paged_call(call_data& data) : data_(data) {}

  /// Where sequences share no pages: shorter ones, whose windows move to keys that nobody looked at
  /// before, with their first two pages in the other order, as far as they had keys in both.
  void change(random_source& random) {
    const tensor_view lengths = named("seqlens_k");
    const tensor_view table = named("block_table");
    const bool shares = named("cu_prefix_seqs").present();
    for (std::int64_t n = 0; n < lengths.elements(); ++n) {
      const auto keys = read(lengths, n);
      if (keys >= 2 * page_size() && table.extent[1] >= 2 && !shares) swap_pages(table, n);
      const std::int64_t rows = rows_of(n);
      if (!shares && keys > rows) store(lengths, n, random.between(rows, keys));
    }
    support::random_source values(static_cast<std::uint64_t>(random.between(1, 1000000)));
    const tensor_view q = named("q");
    reference::for_each_element(q, [&](std::int64_t, std::int64_t offset) {
      support::store(q, offset, static_cast<double>(values.bell()));
    });
    data_.remember();
  }

 private:
  tensor_view named(std::string_view name) const {
    const auto& forms = data_.op().form->tensors;
    for (std::size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].name == name) return data_.tensors()[i];
    }
    return {};
  }
  static std::int64_t offset_of(const tensor_view& numbers, std::int64_t n) {
    return n * numbers.stride[0];
  }
  static std::int64_t read(const tensor_view& numbers, std::int64_t n) {
    return static_cast<std::int64_t>(reference::read(numbers, offset_of(numbers, n)));
  }
  static void store(const tensor_view& numbers, std::int64_t n, std::int64_t value) {
    support::store(numbers, offset_of(numbers, n), static_cast<double>(value));
  }
  /// Rows of q that sequence `n` has; it has as many keys at least.
  std::int64_t rows_of(std::int64_t n) const {
    const tensor_view offsets = named("cu_seqlens_q");
    return offsets.present() ? read(offsets, n + 1) - read(offsets, n) : 1;
  }
  /// Of pools whose second axis is that of slots.
  std::int64_t page_size() const { return named("k_pages").extent[1]; }
  static void swap_pages(const tensor_view& table, std::int64_t n) {
    const std::int64_t first = n * table.stride[0];
    const std::int64_t second = first + table.stride[1];
    const double page = reference::read(table, first);
    support::store(table, first, reference::read(table, second));
    support::store(table, second, page);
  }

  call_data& data_;
};

/// Sequences that share their first pages.
std::vector<support::call_trait> prefixes_of(const operation& op) {
  std::vector<support::call_trait> traits;
  for (const support::call_trait& trait : support::traits_of(op)) {
    const std::string_view name = support::name_of(op, trait);
    if (name == "cu_prefix_seqs" || name == "prefix_pages") traits.push_back(trait);
  }
  return traits;
}

class page_graphs : public testing::TestWithParam<support::tested_row> {};

TEST_P(page_graphs, replay_with_other_lengths_pages_and_values) {
  const support::tested_row& tested = GetParam();
  if (!support::runs_here(tested.row->target)) return;
  int ran = 0;
  for (const operation& op : tested.kind->operations) {
    if (op.name != "unified_attention") continue;
    for (std::uint64_t number = 0; number < 6; ++number) {
      random_source random = support::stream(57, number);
      support::call_wishes wishes{.density = 0.0, .work = 4e6, .longest = 4000};
      const auto set = [&](std::string_view symbol, std::int64_t extent) {
        const std::int8_t dim = declared::dim_named(op.form->dims, symbol);
        if (dim >= 0) wishes.extents[static_cast<std::size_t>(dim)] = extent;
      };
      set("M", number % 2 == 0 ? 40 : 90);
      set("T", 16);
      const std::vector<support::call_trait> groups = prefixes_of(op);
      if (number >= 4) wishes.traits = groups;
      const auto data = support::call_for(tested, op, random, wishes, {.poison = false});
      if (data == nullptr) continue;
      ++ran;
      SCOPED_TRACE(data->text());
      const stream stream;
      device_image image(op.form->tensors, data->tensors());
      const std::vector<tensor_view> there = image.tensors(first_device);
      context where = support::context_here({.row = tested.row->name});
      where.stream = stream.handle();
      const auto plan = plan_operation(*tested.kind, support::problem_here(data->problem()), where);
      ASSERT_TRUE(plan) << plan.message();
      status done;
      const graph recorded(stream.handle(),
                           [&] { done = plan->run(there.data(), stream.handle()); });
      ASSERT_TRUE(done) << done.message();
      for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        data->reset();
        if (round > 0) paged_call(*data).change(random);
        const support::call_expectation expectation(data->call());
        image.send(stream.handle());
        recorded.launch(stream.handle());
        ASSERT_TRUE(image.fetch(stream.handle())) << "memory outside the outputs was written";
        EXPECT_EQ(expectation.complaints(data->tensors()), "");
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(ran, 0);
}

std::vector<support::tested_row> rows_over_pages() {
  std::vector<support::tested_row> rows;
  for (const support::tested_row& row : support::tested_rows()) {
    if (row.row->family == "attention" &&
        row.row->config_as<attention_config>().keys == key_storage::paged) {
      rows.push_back(row);
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(rows, page_graphs, testing::ValuesIn(rows_over_pages()),
                         [](const auto& tested) {
                           return support::test_name(tested.param.row->name);
                         });

}  // namespace
}  // namespace tessera::device_test
