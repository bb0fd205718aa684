#include "workload.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <tessera/runtime/family.hpp>
#include <tessera/runtime/operation.hpp>

#include "tests/reference/store.hpp"

namespace tessera::bench {
namespace {

std::size_t bytes_of(const tensor_view& shape) {
  return static_cast<std::size_t>(shape.elements()) * size_of(shape.type);
}

/// A byte of numbers that tests cannot write one by one: below 2 in formats of 8 bits, scales from
/// 2^-7 to 2^7.
std::byte ordinary_byte(dtype type, support::random_source& random) {
  if (type == dtype::f8_e8m0) return static_cast<std::byte>(random.between(120, 134));
  const bool small = type == dtype::f8_e4m3 || type == dtype::f8_e5m2;
  return static_cast<std::byte>(random.bits() & (small ? 0xBFu : 0xFFu));
}

/// The first elements of row-major memory, about `most` of them.
tensor_view first_part(tensor_view memory, std::int64_t most) {
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(memory.rank); ++axis) {
    if (memory.elements() <= most) break;
    const std::int64_t inside = memory.elements() / memory.extent[axis];
    memory.extent[axis] = std::max<std::int64_t>(most / inside, 1);
  }
  return memory;
}

}  // namespace

workload::workload(const problem_view& problem, const workload_wishes& wishes)
    : problem_(problem), wishes_(wishes), random_(wishes.seed) {
  call_ = bind(problem_.tensors.data());
  if (!checks::is_problem(call_, problem_.tensors.data(), refusal_)) return;
  drop_what_only_has_a_shape();
  make_lists(wishes.lengths);
  if (!checks::are_shapes(call_, ~0u, refusal_)) return;
  status unsettled;  // extents that follow from the numbers in lists are not what they will be
  static_cast<void>(checks::are_contents(call_, unsettled));
  settle_late_extents(call_);
  add_outputs(call_);
  if (!checks::are_shapes(call_, 0, refusal_) || !checks::are_contents(call_, refusal_)) return;
  make_values();
  make_residuals();
}

bound_call workload::bind(const tensor_view* tensors) const noexcept {
  bound_call call = call_;
  call.op = problem_.op;
  call.tensors = tensors;
  call.options = problem_.options.data();
  return call;
}

bool workload::is_output(std::size_t tensor) const noexcept {
  return problem_.op->form->tensors[tensor].is_output();
}

/// An input whose gradient is required only lends it its shape where it is free.
void workload::drop_what_only_has_a_shape() {
  const signature& form = *problem_.op->form;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const std::int8_t of = form.tensors[i].gradient_of;
    if (of < 0 || !is_output(i) || (problem_.op->required >> i & 1u) == 0) continue;
    const bool needed = (problem_.op->required >> of & 1u) != 0;
    const auto lender = static_cast<std::size_t>(of);
    if (form.tensors[lender].free && !needed) problem_.tensors[lender] = {};
  }
}

void workload::make_lists(length_profile profile) {
  const signature& form = *problem_.op->form;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    if (problem_.tensors[i].present() && reference::decides_what_is_read(form, i)) make(i, {}, 1);
  }
  fill_lengths(call_, profile, wishes_.seed);
}

void workload::settle_late_extents(const bound_call& call) {
  const signature& form = *problem_.op->form;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    tensor_view& view = problem_.tensors[i];
    const shape_form& shape = form.shape(i, call.layout);
    for (std::size_t at = 0; view.present() && at < static_cast<std::size_t>(view.rank); ++at) {
      const axis_form& axis = shape.axes[at];
      const bool late = axis.dim >= 0 && form.dims[static_cast<std::size_t>(axis.dim)].source ==
                                             dim_source::contents;
      const std::int64_t extent = checks::extent_of(call, axis);
      if (late && !checks::meets(axis, view.extent[at], extent)) view.extent[at] = extent;
    }
  }
}

void workload::add_outputs(bound_call& call) {
  const operation& op = *problem_.op;
  const family* const kind = operation_named(op.name).kind;
  for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
    const tensor_form& form = op.form->tensors[i];
    tensor_view& view = problem_.tensors[i];
    if (!form.is_output() || (op.taken >> i & 1u) == 0) continue;
    if (kind != nullptr && form.name == kind->side_output) {
      view = {};
    } else if (form.free && !view.present()) {
      static_cast<void>(checks::derive_output(call, i, view));
    }
  }
}

workload::movement workload::movement_of(std::size_t tensor, std::size_t largest) const {
  const tensor_view& view = problem_.tensors[tensor];
  const std::size_t bytes = bytes_of(view);
  constexpr std::size_t small = 8;  // times smaller than the largest: caches may keep it
  if (wishes_.cold_bytes == 0 || bytes == 0 || bytes * small < largest || view.rank == 0) return {};
  movement moves{.axis = 0, .extent = view.extent[0], .bytes = (bytes + 63) / 64 * 64};
  const reference::operation_reference* const known = reference::reference_of(problem_.op->name);
  if (known == nullptr || known->part_read == nullptr || is_output(tensor)) return moves;
  const reference::read_part part = known->part_read(call_);
  const shape_form& shape = problem_.op->form->shape(tensor, call_.layout);
  for (std::size_t at = 0; at + 1 < static_cast<std::size_t>(view.rank); ++at) {
    const std::int8_t dim = shape.axes[at].dim;
    if (dim < 0 || problem_.op->form->dims[static_cast<std::size_t>(dim)].symbol != part.dim)
      continue;
    if (part.extent >= view.extent[at]) continue;
    moves = {
        at, part.extent,
        bytes / static_cast<std::size_t>(view.extent[at]) * static_cast<std::size_t>(part.extent)};
  }
  return moves;
}

void workload::make_values() {
  const signature& form = *problem_.op->form;
  const auto is_made = [&](std::size_t i) {
    const bool shape_only = form.tensors[i].use == tensor_use::output && !wishes_.outputs;
    return problem_.tensors[i].present() && !reference::decides_what_is_read(form, i) &&
           !shape_only;
  };
  std::size_t largest = 0, once = 0, step = 0;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    if (is_made(i)) largest = std::max(largest, bytes_of(problem_.tensors[i]));
  }
  std::array<movement, max_tensors> moves{};
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    if (!is_made(i)) continue;
    moves[i] = movement_of(i, largest);
    if (moves[i].extent > 0) once += bytes_of(problem_.tensors[i]), step += moves[i].bytes;
  }
  const std::size_t pieces =
      wishes_.cold_bytes > once && step > 0 ? 1 + (wishes_.cold_bytes - once + step - 1) / step : 1;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    tensor_view& view = problem_.tensors[i];
    if (is_made(i)) {
      make(i, moves[i], pieces);
    } else if (!reference::decides_what_is_read(form, i)) {
      view.stride = contiguous_strides(view.extent, view.rank);
    }
  }
}

/// Runs the operation that writes what this one reads, on the first pieces. A build without rows
/// for it leaves the residuals as they were drawn.
void workload::make_residuals() {
  const reference::operation_reference* const known = reference::reference_of(problem_.op->name);
  if (known == nullptr || known->residuals_of.empty()) return;
  const found_operation writer = operation_named(known->residuals_of);
  if (writer.op == nullptr) return;
  const signature& form = *problem_.op->form;
  const auto theirs = writer.op->form->tensors;
  std::vector<tensor_view> tensors(theirs.size());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const auto here = std::ranges::find(form.tensors, theirs[i].name, &tensor_form::name);
    const bool residual =
        std::ranges::find(known->residuals, theirs[i].name) != known->residuals.end();
    if (here == form.tensors.end() || (theirs[i].is_output() && !residual)) continue;
    tensors[i] = problem_.tensors[static_cast<std::size_t>(here - form.tensors.begin())];
  }
  // A refusal is the caller's to find: it would be refused as well.
  static_cast<void>(
      call_operation(*writer.kind, *writer.op, tensors.data(), problem_.options.data()));
}

/// Memory for a tensor, with its contents. Pieces that are whole tensors lie one behind the other;
/// others share an axis that is longer.
void workload::make(std::size_t tensor, const movement& moves, std::size_t pieces) {
  tensor_view& view = problem_.tensors[tensor];
  tensor_memory& memory = memory_[tensor];
  memory.pieces = moves.extent > 0 ? pieces : 1;
  const bool whole = moves.extent == 0 || moves.extent == view.extent[moves.axis];
  tensor_view all = view;
  if (!whole) all.extent[moves.axis] += static_cast<std::int64_t>(memory.pieces - 1) * moves.extent;
  view.stride = all.stride = contiguous_strides(all.extent, all.rank);
  memory.step =
      whole ? moves.bytes
            : static_cast<std::size_t>(moves.extent * view.stride[moves.axis]) * size_of(view.type);
  const std::size_t once = bytes_of(all);
  memory.bytes = buffer(whole ? once + (memory.pieces - 1) * memory.step : once);
  view.data = all.data = memory.bytes.data();
  const tensor_use use = problem_.op->form->tensors[tensor].use;
  if (use == tensor_use::output) {
    // NaN: what is not written is noticed.
    std::memset(memory.bytes.data(), 0xff, memory.bytes.size());
    return;
  }
  if (!reference::decides_what_is_read(*problem_.op->form, tensor)) fill(tensor, all);
  for (std::size_t piece = 1; whole && piece < memory.pieces; ++piece) {
    std::memcpy(memory.bytes.data() + piece * memory.step, memory.bytes.data(), once);
  }
  if (use == tensor_use::input_and_output) {
    memory.before.assign(memory.bytes.data(), memory.bytes.data() + once);
  }
}

/// Draws the first elements and repeats them behind: large tensors are made as fast as memory.
/// Whole numbers may follow from their places.
void workload::fill(std::size_t tensor, const tensor_view& memory) {
  constexpr std::int64_t most_drawn = std::int64_t{1} << 22;
  const bool repeats = reference::is_floating(memory.type) || size_of(memory.type) == 1;
  const tensor_view part = repeats ? first_part(memory, most_drawn) : memory;
  draw(tensor, part);
  auto* const data = static_cast<std::byte*>(memory.data);
  const std::size_t all = bytes_of(memory), drawn = bytes_of(part);
  for (std::size_t done = drawn; done < all; done += drawn) {
    std::memcpy(data + done, data, std::min(drawn, all - done));
  }
}

void workload::draw(std::size_t tensor, const tensor_view& part) {
  std::vector<tensor_view> tensors = problem_.tensors;
  tensors[tensor] = part;
  const bound_call call = bind(tensors.data());
  const reference::operation_reference* const known = reference::reference_of(problem_.op->name);
  const auto ordinary = known != nullptr ? known->ordinary : nullptr;
  if (ordinary == nullptr && known != nullptr && known->fill != nullptr &&
      known->fill(call, tensor, random_)) {
    return;
  }
  const bool positive = problem_.op->form->tensors[tensor].holds == tensor_contents::positive;
  const bool bytes = size_of(part.type) == 1, floating = reference::is_floating(part.type);
  for (std::int64_t n = 0; n < part.elements(); ++n) {
    if (positive) {
      reference::store(part, n, 1.0);
    } else if (ordinary != nullptr) {
      reference::store(part, n, ordinary(call, tensor, n, random_));
    } else if (bytes) {
      static_cast<std::byte*>(part.data)[n] = ordinary_byte(part.type, random_);
    } else {
      const double whole = floating ? 0 : static_cast<double>(random_.below(8));
      reference::store(part, n, floating ? static_cast<double>(random_.bell()) : whole);
    }
  }
}

std::vector<tensor_view> workload::tensors(std::size_t round) const {
  constexpr std::size_t prime = 7919;
  std::vector<tensor_view> tensors = problem_.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].data == nullptr) continue;
    tensors[i].data = static_cast<std::byte*>(tensors[i].data) +
                      round * prime % memory_[i].pieces * memory_[i].step;
  }
  return tensors;
}

std::vector<memory_block> workload::blocks() const {
  std::vector<memory_block> all;
  for (std::size_t i = 0; i < problem_.tensors.size(); ++i) {
    const buffer& bytes = memory_[i].bytes;
    if (bytes.data() == nullptr) continue;
    all.push_back({.bytes = {bytes.data(), bytes.size()},
                   .is_read = problem_.op->form->tensors[i].use != tensor_use::output,
                   .is_written = is_output(i)});
  }
  return all;
}

reference::call_work workload::work() const {
  return reference::work_of(bind(problem_.tensors.data()));
}

support::judged_output workload::verdict(const tensor_view* computed,
                                         const reference::sample_plan& plan, bool thorough) const {
  std::vector<tensor_view> asked = problem_.tensors;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!memory_[i].before.empty()) {
      asked[i].data = const_cast<std::byte*>(memory_[i].before.data());
    }
  }
  return support::worst_output(
      bind(asked.data()), computed != nullptr ? computed : problem_.tensors.data(), plan, thorough);
}

}  // namespace tessera::bench
