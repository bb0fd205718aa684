// What calls cost on paper.
#include <algorithm>

#include <tessera/spec/check.hpp>

#include "operations.hpp"

namespace tessera::reference {
namespace {

double bytes_of(const tensor_view& view) {
  auto count = static_cast<double>(size_of(view.type));
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    const bool broadcasts = view.stride[axis] == 0 && view.extent[axis] > 0 && view.data != nullptr;
    if (!broadcasts) count *= static_cast<double>(view.extent[axis]);
  }
  return count;
}

/// How much of a pool its sequences use, where a tensor is one: 1 if it is none.
double used_share(const bound_call& call, std::size_t tensor) {
  const signature& form = call.form();
  const shape_form& shape = form.shape(tensor, call.layout);
  for (std::size_t list = 0; list < form.tensors.size(); ++list) {
    const tensor_form& pages = form.tensors[list];
    if (!call.has(list) || pages.holds != tensor_contents::page_numbers) continue;
    const tensor_view& lengths = call.tensors[pages.used_by];
    const bool has_pages =
        std::any_of(shape.axes.begin(), shape.axes.begin() + shape.rank,
                    [&](const axis_form& axis) { return axis.dim == pages.counts; });
    if (!has_pages || !lengths.present() || lengths.data == nullptr) continue;
    double used = 0;
    for (const double length : to_doubles(lengths)) used += length;
    const double room = static_cast<double>(call.dims[static_cast<std::size_t>(pages.counts)]) *
                        static_cast<double>(call.dims[static_cast<std::size_t>(pages.page)]);
    return room > 0 ? used / room : 0;
  }
  return 1;
}

}  // namespace

call_work work_of(bound_call call) {
  call_work work;
  status unfit;
  if (!checks::are_shapes(call, ~0u, unfit)) return work;
  for (std::size_t i = 0; i < call.form().tensors.size(); ++i) {
    const tensor_view& view = call.tensors[i];
    if (!view.present()) continue;
    work.flops = std::max(work.flops, static_cast<double>(view.elements()));
    work.bytes += bytes_of(view) * used_share(call, i);
  }
  const operation_reference* const known = reference_of(call.op->name);
  if (known != nullptr && known->count != nullptr) known->count(call, work);
  return work;
}

}  // namespace tessera::reference
