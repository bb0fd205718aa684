// What a family of kernels tells the chain of choosers about itself: one record, the same type for
// every family, so that the chain, plans and tools are compiled once.
//
// A problem is what a user asks for. A demand is everything a choice may depend on, read off the
// problem once: remembered choices compare the demand, eligibility and cost see nothing else. A key
// is the demand with sizes rounded to buckets: what a lookup table is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// What the estimates of all rows for one demand start from; of a type of the family.
struct demand_facts {
  alignas(8) std::byte bytes[208];
};

/// What callers from C know an operation by. It stays the same for good: a family keeps its number,
/// and further operations come behind those that it has.
constexpr int operation_number(int family, const operation& op) noexcept {
  return family * 100 + op.number;
}

/// One family. Functions that take a config take that of one of its rows.
struct family {
  std::string_view name;     ///< first part of its rows' names
  int number = 0;            ///< of this family and no other, ever: see operation_number
  int semantic_version = 1;  ///< counts up when problem or key change their meaning
  /// How far a measurement of another size may stand in, in doublings; 0: never.
  double max_log2_distance = 0;
  std::span<const operation> operations;
  std::span<const demand_field> fields;

  /// Rows of this build, sorted by name; generated.
  std::span<const instance> (*rows)() noexcept = nullptr;
  /// Digest of the sources of the kernels for one kind of device; generated.
  std::string_view (*code_version)(device_kind) noexcept = nullptr;

  /// The demand that does not say how many other entries a batch has.
  void (*without_batch)(demand&) noexcept = nullptr;
  /// Index of the first row from `begin` on that the device runs and that runs the demand, or the
  /// number of rows: the loop over all rows, typed.
  std::size_t (*next_fitting)(std::span<const instance> rows, std::size_t begin,
                              const demand& asked, const device_facts& device) noexcept = nullptr;
  bool (*runs)(const void* config, const demand& asked) noexcept = nullptr;
  bool (*runs_on)(const void* config, const device_facts& device) noexcept = nullptr;
  /// What is in the way: "head_dim is 96, the row has 128".
  std::string (*difference)(const void* config, const demand& asked) = nullptr;
  /// What a device that has the row's backend lacks; null: nothing ever.
  std::string (*missing_on)(const void* config, const device_facts& device) = nullptr;
  int (*distance)(const void* config, const demand& asked) noexcept = nullptr;
  /// Rows that take any problem.
  bool (*is_generic)(const void* config) noexcept = nullptr;
  void (*facts_of)(const demand& asked, demand_facts& facts) noexcept = nullptr;
  /// `workers`: threads, or the multiprocessors of a GPU.
  work_estimate (*estimate)(const void* config, const demand_facts& facts,
                            int workers) noexcept = nullptr;
  /// Words for an answer.
  std::string (*reason_of)(const void* config, const demand_facts& facts, int workers) = nullptr;
  /// The row that would be made for a demand; empty: none.
  std::string (*wanted_row)(const demand& asked, const device_facts& device,
                            const void* chosen) = nullptr;

  /// An output that no kernel writes but `instance::finish`: the name of the tensor, the signature
  /// that has it and its number there.
  std::string_view side_output{};
  const signature* side_form = nullptr;
  std::size_t side_tensor = 0;

  /// The operation of that name or alias, or null.
  const operation* operation_named(std::string_view op) const noexcept {
    for (const operation& known : operations) {
      if (known.is_called(op)) return &known;
    }
    return nullptr;
  }
};

/// Operations stand in the order of their numbers, and callers' buffers hold their options.
constexpr bool are_in_order(std::span<const operation> operations) noexcept {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const operation& op = operations[i];
    if (op.number != static_cast<int>(i) || i >= 100) return false;
    if (op.form->options_bytes > max_options_bytes) return false;
    if (op.form->options.size() > static_cast<std::size_t>(max_options)) return false;
  }
  return true;
}

/// "..., 8 work items for 2 threads": how the work of a row is cut.
void append_work(std::string& text, std::int64_t items, int workers, bool on_gpu);

/// The back end of the rows that a family has for devices with these instructions, if products of
/// bf16 or of bytes and Hopper's own change nothing for it.
constexpr backend plain_target(backend highest) noexcept {
  if (is_cuda(highest)) return backend::cuda_sm80;
  return highest > backend::cpu_avx512 ? backend::cpu_avx512 : highest;
}

/// True for rows that take any problem, the last resort of a back end.
template <class Config>
constexpr bool is_last_resort(const Config& config) noexcept {
  if constexpr (requires { is_generic(config); }) return is_generic(config);
  return false;
}

/// The name of the row that would be made for a demand on a device; empty: none, none that a table
/// may have, or none that would run it. `chosen` is what runs instead.
template <class Described>
std::string wanted_row_of(const typename Described::demand_type& asked, const device_facts& device,
                          const typename Described::config_type& chosen) {
  if constexpr (requires { Described::wanted_row(asked, device, chosen); }) {
    return Described::wanted_row(asked, device, chosen);
  } else {
    if (is_cpu(device.highest) != (device.kind == device_kind::cpu)) return {};
    const std::optional<typename Described::config_type> wanted =
        Described::wanted_config(asked, plain_target(device.highest), device.highest);
    const bool helps = wanted && is_legal_in_table(*wanted) && runs(*wanted, asked);
    return helps ? std::string(name_of(*wanted).view()) : std::string();
  }
}

/// The functions of a record for the types of one family.
template <class Described>
struct functions_of_family {
  using config_type = typename Described::config_type;
  using demand_type = typename Described::demand_type;
  using facts_type = typename Described::facts_type;
  static_assert(sizeof(facts_type) <= sizeof(demand_facts) &&
                std::is_trivially_copyable_v<facts_type>);

  static const config_type& typed(const void* config) noexcept {
    return *static_cast<const config_type*>(config);
  }
  static const demand_type& typed(const demand& asked) noexcept { return asked.as<demand_type>(); }
  static const facts_type& typed(const demand_facts& facts) noexcept {
    return *reinterpret_cast<const facts_type*>(facts.bytes);
  }

  static void forget_batch(demand& asked) noexcept { asked.set(without_batch(typed(asked))); }
  /// A device that has the row's backend runs the row.
  static bool has_room(const config_type& config, const device_facts& device) noexcept {
    if constexpr (requires { Described::runs_on(config, device); }) {
      return Described::runs_on(config, device);
    } else {
      return true;
    }
  }
  /// Most rows fail the first conditions, which take less time than calls: these are inlined.
  [[gnu::flatten]] static std::size_t next_fitting(std::span<const instance> rows,
                                                   std::size_t begin, const demand& asked,
                                                   const device_facts& device) noexcept {
    const demand_type& wanted = typed(asked);
    for (std::size_t index = begin; index < rows.size(); ++index) {
      const config_type& config = rows[index].config_as<config_type>();
      if (!device.runs(config.target) || !tessera::runs(config, wanted)) continue;
      if (has_room(config, device)) return index;
    }
    return rows.size();
  }
  static bool runs(const void* config, const demand& asked) noexcept {
    return tessera::runs(typed(config), typed(asked));
  }
  static bool runs_on(const void* config, const device_facts& device) noexcept {
    return device.runs(typed(config).target) && has_room(typed(config), device);
  }
  static std::string difference(const void* config, const demand& asked) {
    return obstacle_of(typed(config), typed(asked));
  }
  static std::string missing_on(const void* config, const device_facts& device) {
    return Described::missing_on(typed(config), device);
  }
  static int distance(const void* config, const demand& asked) noexcept {
    return distance_of(typed(config), typed(asked));
  }
  static bool takes_any(const void* config) noexcept { return is_last_resort(typed(config)); }
  static void find_facts(const demand& asked, demand_facts& facts) noexcept {
    ::new (static_cast<void*>(facts.bytes)) facts_type(facts_of(typed(asked)));
  }
  static work_estimate estimate(const void* config, const demand_facts& facts,
                                int workers) noexcept {
    return estimate_of(typed(config), typed(facts), workers);
  }
  static std::string reason_of(const void* config, const demand_facts& facts, int workers) {
    if constexpr (requires { Described::reason_of(typed(config), typed(facts), workers); }) {
      return Described::reason_of(typed(config), typed(facts), workers);
    } else {
      std::string text(Described::subject_of(typed(config), typed(facts)));
      append_work(text, estimate_of(typed(config), typed(facts), workers).items, workers,
                  is_cuda(typed(config).target));
      return text;
    }
  }
  static std::string wanted_row(const demand& asked, const device_facts& device,
                                const void* chosen) {
    return wanted_row_of<Described>(typed(asked), device,
                                    chosen != nullptr ? typed(chosen) : config_type{});
  }
};

/// The record of a family whose rows are those of `Rows`. `Described`
/// (families/<family>/family.hpp) has its types, its constants and what is said of its rows; the
/// rest are the functions for these types: what spec/fits.hpp makes of `fits_of`, without_batch,
/// facts_of, estimate_of, and is_generic where some rows take any problem.
template <class Described, auto Rows, auto CodeVersion>
consteval family family_of() {
  using functions = functions_of_family<Described>;
  static_assert(are_in_order(Described::operations) && Described::number > 0);
  family record{.name = Described::name,
                .number = Described::number,
                .semantic_version = Described::semantic_version,
                .max_log2_distance = Described::max_log2_distance,
                .operations = Described::operations,
                .fields = Described::fields,
                .rows = Rows,
                .code_version = CodeVersion,
                .without_batch = &functions::forget_batch,
                .next_fitting = &functions::next_fitting,
                .runs = &functions::runs,
                .runs_on = &functions::runs_on,
                .difference = &functions::difference,
                .distance = &functions::distance,
                .is_generic = &functions::takes_any,
                .facts_of = &functions::find_facts,
                .estimate = &functions::estimate,
                .reason_of = &functions::reason_of,
                .wanted_row = &functions::wanted_row};
  if constexpr (requires { &Described::missing_on; }) record.missing_on = &functions::missing_on;
  if constexpr (requires { Described::side_output; }) {
    record.side_output = Described::side_output;
    record.side_form = Described::side_form;
    record.side_tensor = static_cast<std::size_t>(declared::index_of(
        Described::side_form->tensors, Described::side_output, &tensor_form::name));
  }
  return record;
}

/// The families that this build has rows for; generated.
std::span<const family* const> families() noexcept;

/// The operation of that name or alias and its family; null where this build has none.
struct found_operation {
  const family* kind = nullptr;
  const operation* op = nullptr;
};
inline found_operation operation_named(std::string_view name) noexcept {
  for (const family* kind : families()) {
    if (const operation* op = kind->operation_named(name)) return {kind, op};
  }
  return {};
}

}  // namespace tessera
