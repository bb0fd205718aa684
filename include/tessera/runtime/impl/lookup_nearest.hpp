// The closest of many points on logarithmic axes, without looking at all of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include <tessera/runtime/impl/lookup_index.hpp>
#include <tessera/runtime/lookup/record.hpp>

namespace tessera::lookup_form {

/// Search over the sorted points of a group: axis by axis, one step per distinct value, and never
/// further away than the best so far. With sizes in powers of two and a reach of one this looks at
/// a few dozen values whatever the number of points.
struct closest_point {
  const lookup_record* records = nullptr;  ///< of the group, sorted by their points
  const float* points = nullptr;           ///< `axes` values per record
  std::uint32_t axes = 0;
  const float* asked = nullptr;   ///< one value per axis
  std::string_view code_version;  ///< empty: any
  double reach = 0;               ///< in: the most that is allowed; out: the distance of `found`
  std::uint32_t found = hash_index::none;

  float at(std::uint32_t position, std::uint32_t axis) const noexcept {
    return points[std::size_t{position} * axes + axis];
  }
  bool improves(double distance) const noexcept {
    return distance < reach || (distance == reach && found == hash_index::none);
  }
  /// First position in [begin, end) whose value on the axis is not below `value`.
  std::uint32_t lower(std::uint32_t begin, std::uint32_t end, std::uint32_t axis,
                      double value) const noexcept {
    while (begin < end) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      if (static_cast<double>(at(middle, axis)) < value) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  /// Looks at the points of [begin, end), which agree on the axes before `axis` and are `distance`
  /// away on those. At most `most_sizes` calls deep.
  void search(std::uint32_t begin, std::uint32_t end, std::uint32_t axis,
              double distance) noexcept {
    if (axis == axes) {
      take(begin, end, distance);
      return;
    }
    const auto here = static_cast<double>(asked[axis]);
    std::uint32_t run = lower(begin, end, axis, here - (reach - distance));
    while (run < end) {
      const float value = at(run, axis);
      const double further = distance + std::abs(static_cast<double>(value) - here);
      if (static_cast<double>(value) > here && !improves(further)) return;
      const std::uint32_t next =
          lower(run, end, axis, static_cast<double>(std::nextafter(value, 1e30f)));
      if (improves(further)) search(run, next, axis + 1, further);
      run = next;
    }
  }

  /// Records at one point, the last one first.
  void take(std::uint32_t begin, std::uint32_t end, double distance) noexcept {
    for (std::uint32_t position = end; position > begin; --position) {
      const lookup_record& one = records[position - 1];
      if (!code_version.empty() && one.code_version != code_version) continue;
      reach = distance;
      found = position - 1;
      return;
    }
  }
};

}  // namespace tessera::lookup_form
