// Rows that an application compiled itself: its own tile, its own kernel behind the same launcher.
// They are asked beside the rows of the build, in the same way.
//
//   constexpr std::array mine{tessera::row_of<my_tile>("my_app.f32.d80")};
//   const tessera::application_rows rows(mine);
//   auto plan = tessera::plan(problem, tessera::with_rows({}, rows));
#pragma once

#include <cstdint>
#include <span>

#include <tessera/spec/instance.hpp>

namespace tessera {

/// A number that no two scopes of a process share; 0 is none. Remembered choices carry it, so that
/// they never outlive what they were made from.
std::uint64_t next_scope_number() noexcept;

/// Instances of any families. Refers to the instances, which must outlive every plan made with
/// them. Where a name is also in the build, the application's row is meant.
class application_rows {
 public:
  explicit application_rows(std::span<const instance> rows) noexcept : rows_(rows) {}
  application_rows(const application_rows&) = delete;
  application_rows& operator=(const application_rows&) = delete;

  std::span<const instance> rows() const noexcept { return rows_; }
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::span<const instance> rows_;
  std::uint64_t number_ = next_scope_number();
};

}  // namespace tessera
