// Mean pooling as the commands see it.
#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>

#include "list.hpp"
#include "typed_call.hpp"

namespace tessera::tool {
namespace {

struct mean_pooling_described {
  using runtime_family = mean_pooling_family;
  using op_type = mean_pooling_op;
  using options_type = mean_pooling_options;

  static bool is_output(mean_pooling_op op, std::string_view name) {
    return name == (is_backward(op) ? "d_x" : "out");
  }
  static bool takes(mean_pooling_op op, std::string_view name) {
    return name == "x" || name == "cu_seqlens" || (name == "mask" && !has_chunks(op)) ||
           (name == "d_out" && is_backward(op));
  }
  static bool is_gradient(std::string_view name) { return name == "d_out"; }
  /// The gradient does not read x, but its shape is that of the result.
  static std::vector<std::string_view> required(mean_pooling_op op) {
    if (is_backward(op)) return {"x", "d_out"};
    return {"x"};
  }
  static dtype operand_type(const mean_pooling_args& args) { return args.x.type; }
  static std::optional<mean_pooling_op> backward_of(mean_pooling_op op) {
    if (op == mean_pooling_op::mean_pooling) return mean_pooling_op::mean_pooling_backward;
    if (op == mean_pooling_op::mean_pooling_chunks) {
      return mean_pooling_op::mean_pooling_chunks_backward;
    }
    return std::nullopt;
  }

  static call_work work_of(mean_pooling_op op, const mean_pooling_args& args,
                           const mean_pooling_options&) {
    const auto bytes_of = [](const tensor_view& view) {
      return view.present()
                 ? static_cast<double>(view.elements()) * static_cast<double>(size_of(view.type))
                 : 0.0;
    };
    const tensor_view& tokens = is_backward(op) ? args.d_x : args.x;
    const tensor_view& means = is_backward(op) ? args.d_out : args.out;
    return {.flops = static_cast<double>(tokens.elements()),
            .bytes = bytes_of(tokens) + bytes_of(means) + bytes_of(args.mask) +
                     bytes_of(args.cu_seqlens)};
  }

  static void allocate(mean_pooling_op op, const mean_pooling_options& options,
                       mean_pooling_args& args, output_memory& memory) {
    const auto& x = args.x.extent;
    const dtype type = args.x.type;
    const bool packed = args.cu_seqlens.present();
    const int rank = args.x.rank;
    if (rank != (has_chunks(op) ? 4 : packed ? 2 : 3)) return;
    if (is_backward(op)) {
      if (rank == 4) args.d_x = memory.add(type, {x[0], x[1], x[2], x[3]});
      if (rank == 3) args.d_x = memory.add(type, {x[0], x[1], x[2]});
      if (rank == 2) args.d_x = memory.add(type, {x[0], x[1]});
    } else if (has_chunks(op)) {
      args.out = memory.add(type, {x[0], chunks_of(args, options), x[2], x[3]});
    } else if (packed) {
      args.out = memory.add(type, {std::max<std::int64_t>(args.cu_seqlens.extent[0], 1) - 1, x[1]});
    } else {
      args.out = memory.add(type, {x[0], x[2]});
    }
  }

  static std::string remark(std::span<const listed_row>) { return {}; }

 private:
  /// Chunks of all sequences; whether the offsets are valid is for the call to say.
  static std::int64_t chunks_of(const mean_pooling_args& args,
                                const mean_pooling_options& options) {
    const std::int64_t size = std::max<std::int64_t>(options.chunk_size, 1);
    const auto chunks = [&](std::int64_t tokens) {
      return std::max<std::int64_t>(tokens / size + (tokens % size > 0 ? 1 : 0), 0);
    };
    const tensor_view& offsets = args.cu_seqlens;
    if (!offsets.present()) return chunks(args.x.extent[1]);
    if (offsets.type != dtype::i32 || offsets.rank != 1) return 0;
    const auto* const offset = static_cast<const std::int32_t*>(offsets.data);
    std::int64_t count = 0;
    for (std::int64_t n = 0; n + 1 < offsets.extent[0]; ++n) {
      count += std::min(chunks(std::int64_t{offset[n + 1]} - offset[n]), args.x.extent[1]);
    }
    return std::min(count, args.x.extent[1]);
  }
};

}  // namespace

const family& mean_pooling() {
  static const typed_family<mean_pooling_described> only;
  return only;
}

}  // namespace tessera::tool
