// Attention, forward, as the commands see it.
#include <array>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/lower.hpp>
#include <tessera/families/attention/reflect.hpp>

#include "bench/support/work.hpp"
#include "list.hpp"
#include "typed_call.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct attention_described {
  using runtime_family = attention_family;
  using op_type = flash_op;
  using options_type = flash_attention_options;

  static bool is_output(flash_op, std::string_view name) {
    constexpr std::array<std::string_view, 5> names{"out", "lse", "row_max", "weights",
                                                    "dropout_mask"};
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  static bool takes(flash_op op, std::string_view name) {
    bool member = false;
    const flash_attention_args none;
    for_each_member(none, [&](std::string_view known, const auto&) { member |= known == name; });
    return member && !is_output(op, name);
  }
  static bool is_gradient(std::string_view name) {
    return name == "d_out" || name == "d_lse" || name == "d_weights";
  }
  static const std::array<std::string_view, 3>& required(flash_op) {
    static constexpr std::array<std::string_view, 3> names{"q", "k", "v"};
    return names;
  }
  static dtype operand_type(const flash_attention_args& args) { return args.q.type; }
  static std::optional<flash_op> backward_of(flash_op) { return std::nullopt; }

  static call_work work_of(flash_op, const flash_attention_args& args,
                           const flash_attention_options& options) {
    const bench::work counted = bench::work_of(args, options);
    return {counted.flops, counted.bytes};
  }

  static void allocate(flash_op op, const flash_attention_options& options,
                       flash_attention_args& args, output_memory& memory) {
    const auto& q = args.q.extent;
    const auto& k = args.k.extent;
    const auto& v = args.v.extent;
    const bool packed = args.q.rank == 3 && args.v.rank == 3;
    if (!packed && (args.q.rank != 4 || args.k.rank != 4 || args.v.rank != 4)) return;
    const dtype type = args.q.type;
    if (packed) {
      args.out = memory.add(type, {q[0], q[1], v[2]});
      args.lse = memory.add(dtype::f32, {q[1], q[0]});
      if (!options.normalize) args.row_max = memory.add(dtype::f32, {q[1], q[0]});
      return;
    }
    args.out = memory.add(type, {q[0], q[1], q[2], v[3]});
    args.lse = memory.add(dtype::f32, {q[0], q[2], q[1]});
    if (!options.normalize) args.row_max = memory.add(dtype::f32, {q[0], q[2], q[1]});
    if (op == flash_op::attention) args.weights = memory.add(type, {q[0], q[2], q[1], k[1]});
    if (options.dropout_probability > 0.0) {
      args.dropout_mask = memory.add(dtype::u8, {q[0], q[2], q[1], k[1]});
    }
  }

  static json::value json_of(attention_features features) {
    json::array list;
    for (const attention_feature one : all_attention_features) {
      if (features.has(one)) list.push_back(json::string(enumerator_name(one)));
    }
    return list;
  }

  /// Nothing for CPU rows.
  static json::value json_of(const cuda_tiling& tiling) {
    if (tiling == cuda_tiling{}) return nullptr;
    return json::object{{"warps", tiling.warps},
                        {"blocks_per_sm", tiling.blocks_per_sm},
                        {"q_in_registers", tiling.q_in_registers}};
  }

  /// What every row has, named once instead of in every line.
  static std::string remark(std::span<const listed_row> rows) {
    std::string list;
    for (const attention_feature one : all_attention_features) {
      const json::value name(json::string_view(enumerator_name(one)));
      const bool everywhere = std::all_of(rows.begin(), rows.end(), [&](const listed_row& row) {
        const json::array& features = row.config.at("features").as_array();
        return std::find(features.begin(), features.end(), name) != features.end();
      });
      if (!everywhere) continue;
      if (!list.empty()) list += ", ";
      list += enumerator_name(one);
    }
    return list.empty() ? "" : "every row has " + list + ".";
  }
};

}  // namespace

const family& attention() {
  static const typed_family<attention_described> only;
  return only;
}

}  // namespace tessera::tool
