// The constexpr table behind a registry: from row types to instances, checked when compiled. Used
// by generated registry units only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/spec/instance.hpp>
#include <tessera/spec/reflect.hpp>

namespace tessera {

/// A row that breaks a rule stops here; the compiler prints both.
template <class Row, auto Broken>
struct legal_table_row {
  static_assert(Broken == nullptr, "the row breaks the rule named here");
  static constexpr bool value = true;
};

/// Rows out of order, or two rows of one name, stop here; the compiler prints both.
template <class Row, class Next>
struct rows_out_of_order {
  static_assert(sizeof(Row) == 0, "rows are sorted by name, and no name comes twice");
};

/// Two rows of one config stop here; the compiler prints both.
template <class Row, class Other>
struct rows_of_one_config {
  static_assert(sizeof(Row) == 0, "no two rows have the same config");
};

/// A row with what it cost when the table was last measured; 0: not measured. The last two are
/// those of `row_resources`, for families that have them.
template <class Row, std::int64_t Milliseconds, std::int64_t Bytes, std::int32_t Registers = 0,
          std::int32_t LocalBytes = 0>
struct table_row {
  using type = Row;
  /// The row's name and a zero, in no more bytes than that.
  static constexpr auto name = [] {
    constexpr auto text = name_of(Row::config);
    std::array<char, text.view().size() + 1> letters{};
    std::copy(text.view().begin(), text.view().end(), letters.begin());
    return letters;
  }();

  static constexpr instance make() {
    instance row = row_of<Row>({name.data(), name.size() - 1});
    row.compile_seconds = static_cast<float>(Milliseconds) / 1000.0f;
    row.object_bytes = static_cast<std::uint32_t>(Bytes);
    row.resources = {Registers, LocalBytes};
    return row;
  }
  static constexpr tessera::instance entry = make();
  static_assert(legal_table_row<Row, broken_table_rule(Row::config)>::value);
};

/// The instances of `table_row`s, sorted by name. An application's own table has rows of its own.
template <class First, class... More>
class row_table {
  static constexpr std::array<instance, 1 + sizeof...(More)> instances{First::entry,
                                                                       More::entry...};
  static constexpr std::array configs{resolved_config<typename First::type>,
                                      resolved_config<typename More::type>...};

  template <std::size_t Index>
  using row_at = std::tuple_element_t<Index, std::tuple<First, More...>>;

  /// Index of the first row whose name is not after that of the row before it; 0 if none.
  static constexpr std::size_t first_unsorted() noexcept {
    for (std::size_t index = 1; index < instances.size(); ++index) {
      if (!(instances[index - 1].name < instances[index].name)) return index;
    }
    return 0;
  }

  struct pair {
    std::size_t first = 0, second = 0;
  };
  /// Two rows of the same config; equal indices if there are none.
  static constexpr pair first_repeated() noexcept {
    for (std::size_t first = 0; first < instances.size(); ++first) {
      for (std::size_t second = first + 1; second < instances.size(); ++second) {
        if (configs[first] == configs[second]) return {first, second};
      }
    }
    return {};
  }

  template <std::size_t Index>
  static constexpr std::size_t check_order() {
    if constexpr (Index == 0) {
      return 1;
    } else {
      return sizeof(
          rows_out_of_order<typename row_at<Index - 1>::type, typename row_at<Index>::type>);
    }
  }
  template <std::size_t One, std::size_t Other>
  static constexpr std::size_t check_config() {
    if constexpr (One == Other) {
      return 1;
    } else {
      return sizeof(rows_of_one_config<typename row_at<One>::type, typename row_at<Other>::type>);
    }
  }

 public:
  /// The instances; a table with a mistake does not compile, and the compiler names the rows.
  static consteval std::array<instance, 1 + sizeof...(More)> checked() {
    constexpr pair repeated = first_repeated();
    static_assert(check_order<first_unsorted()>() > 0);
    static_assert(check_config<repeated.first, repeated.second>() > 0);
    return instances;
  }
};

}  // namespace tessera
