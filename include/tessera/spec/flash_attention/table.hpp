// The constexpr table behind a registry: from row types to instances, checked when compiled. Used
// by the generated registry unit only. Launchers are named by declaration, so that no kernel
// header is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>
#include <tessera/spec/flash_attention/rules.hpp>

namespace tessera {

namespace flash {
// Defined in kernels/flash_attention/launch.hpp, instantiated by the units.
template <class Row>
std::size_t workspace_bytes(const flash_kernel_args& args, int threads);
template <class Row>
status launch(const flash_kernel_args& args, const launch_context& context);
}  // namespace flash

/// A row that breaks a rule stops here; the compiler prints both.
template <class Row, flash_rule Broken>
struct legal_table_row {
  static_assert(Broken == flash_rule::none, "the row breaks the rule named here");
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

/// A row with what it cost when the table was last measured; 0: not measured.
template <class Row, std::int64_t Milliseconds, std::int64_t Bytes>
struct table_row {
  using type = Row;
  static constexpr flash_row_name name = name_of(Row::config);
  static constexpr flash_instance instance{
      .name = name.view(),
      .config = resolved(Row::config),
      .workspace_bytes = &flash::workspace_bytes<Row>,
      .launch = &flash::launch<Row>,
      .compile_seconds = static_cast<float>(Milliseconds) / 1000.0f,
      .object_bytes = static_cast<std::uint32_t>(Bytes)};
  static_assert(legal_table_row<Row, broken_table_rule(Row::config)>::value);
};

/// The instances of `table_row`s, sorted by name.
template <class... TableRows>
class flash_table {
  static constexpr std::array<flash_instance, sizeof...(TableRows)> instances{
      TableRows::instance...};

  template <std::size_t Index>
  using row_at = std::tuple_element_t<Index, std::tuple<TableRows...>>;

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
        if (instances[first].config == instances[second].config) return {first, second};
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
  template <std::size_t First, std::size_t Second>
  static constexpr std::size_t check_config() {
    if constexpr (First == Second) {
      return 1;
    } else {
      return sizeof(
          rows_of_one_config<typename row_at<First>::type, typename row_at<Second>::type>);
    }
  }

 public:
  /// The instances; a table with a mistake does not compile, and the compiler names the rows.
  static consteval std::array<flash_instance, sizeof...(TableRows)> checked() {
    constexpr pair repeated = first_repeated();
    static_assert(check_order<first_unsorted()>() > 0);
    static_assert(check_config<repeated.first, repeated.second>() > 0);
    return instances;
  }
};

}  // namespace tessera
