#include "compare_tensors.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/reference/elements.hpp"

namespace tessera::tuner {
namespace {

constexpr std::int64_t block_elements = 0x1p15;  // as doubles they stay in a cache
constexpr unsigned most_threads = 8;

/// Rows of elements, one behind the other in memory.
struct rows_of_elements {
  tensor_view tensor;
  std::int64_t width;
  std::int64_t rows;

  explicit rows_of_elements(const tensor_view& view)
      : tensor(view), width(1), rows(view.elements()) {
    if (view.rank > 0) width = view.extent[static_cast<std::size_t>(view.rank - 1)];
    if (width > 0) rows /= width;
  }
  std::int64_t rows_of_block() const { return std::max<std::int64_t>(1, block_elements / width); }
  std::int64_t blocks() const { return (rows + rows_of_block() - 1) / rows_of_block(); }
  std::vector<double> block(std::int64_t number) const {
    const std::int64_t first = number * rows_of_block();
    tensor_view part = tensor;
    part.rank = 1;
    part.extent[0] = std::min(rows_of_block(), rows - first) * width;
    part.stride[0] = 1;
    part.data = static_cast<std::byte*>(tensor.data) +
                first * width * static_cast<std::int64_t>(size_of(tensor.type));
    return reference::to_doubles(part);
  }
};

/// Calls `work(block)` for every block, in fewer threads where no more can be had.
template <class Work>
void for_each_block(std::int64_t blocks, const Work& work) {
  std::atomic<std::int64_t> next = 0;
  const auto take = [&] {
    for (std::int64_t block = next++; block < blocks; block = next++) work(block);
  };
  std::vector<std::jthread> others;
  const unsigned threads = std::min(most_threads, std::thread::hardware_concurrency());
  try {
    for (unsigned n = 1; n < threads && n < blocks; ++n) others.emplace_back(take);
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  take();
}

bool is_worse(const support::comparison& a, const support::comparison& b) {
  if (a.specials_agree != b.specials_agree) return !a.specials_agree;
  return a.specials_agree && a.error > b.error;
}

}  // namespace

support::comparison compare_tensors(const tensor_view& ours, const tensor_view& theirs,
                                    support::error_scale scale) {
  support::comparison worst;
  const auto elements = static_cast<std::size_t>(ours.elements());
  if (elements == 0 || std::memcmp(ours.data, theirs.data, elements * size_of(ours.type)) == 0) {
    return worst;
  }
  const rows_of_elements own(ours), expected(theirs);
  const auto blocks = static_cast<std::size_t>(own.blocks());
  std::vector<double> largest(blocks);
  for_each_block(own.blocks(), [&](std::int64_t block) {
    largest[static_cast<std::size_t>(block)] = support::largest(expected.block(block));
  });
  // The tensor's largest element is part of what scales follow from: a row of it goes with every
  // block.
  const std::vector<double> row(static_cast<std::size_t>(own.width), support::largest(largest));
  std::vector<support::comparison> found(blocks);
  for_each_block(own.blocks(), [&](std::int64_t block) {
    std::vector<double> a = own.block(block), b = expected.block(block);
    a.insert(a.end(), row.begin(), row.end());
    b.insert(b.end(), row.begin(), row.end());
    support::comparison& here = found[static_cast<std::size_t>(block)];
    here = support::compare(a, b, own.width, scale);
    if (here.worst >= 0) here.worst += block * own.rows_of_block() * own.width;
  });
  for (const support::comparison& here : found) {
    if (is_worse(here, worst)) worst = here;
  }
  return worst;
}

}  // namespace tessera::tuner
