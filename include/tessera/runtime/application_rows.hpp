// Rows that an application compiled itself: its own tile, its own kernel behind the same launcher.
// They are asked beside the rows of the build, in the same way.
//
//   constexpr std::array mine{my_instance};
//   const tessera::application_rows rows(mine);
//   auto plan = tessera::plan(problem, tessera::with_rows({}, rows));
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>

namespace tessera {

namespace impl {
/// One address per type.
template <class Type>
inline constexpr char type_mark = 0;
}  // namespace impl

/// A number that no two scopes of a process share; 0 is none. Remembered choices carry it, so that
/// they never outlive what they were made from.
std::uint64_t next_scope_number() noexcept;

/// Instances of one family, and optionally those of others behind them. Refers to the instances,
/// which must outlive every plan made with them. Where a name is also in the build, the
/// application's row is meant.
class application_rows {
 public:
  template <std::ranges::contiguous_range Instances>
  requires std::ranges::sized_range<Instances> && std::ranges::borrowed_range<Instances>
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): constrained, and copies are deleted.
  explicit application_rows(Instances&& rows, const application_rows* next = nullptr) noexcept
      : type_(&impl::type_mark<std::ranges::range_value_t<Instances>>),
        data_(std::ranges::data(rows)),
        size_(std::ranges::size(rows)),
        next_(next) {}
  application_rows(const application_rows&) = delete;
  application_rows& operator=(const application_rows&) = delete;

  /// The instances of that type; empty if there are none.
  template <class Instance>
  std::span<const Instance> of() const noexcept {
    for (const application_rows* one = this; one != nullptr; one = one->next_) {
      if (one->type_ != &impl::type_mark<Instance>) continue;
      return {static_cast<const Instance*>(one->data_), one->size_};
    }
    return {};
  }

  std::uint64_t number() const noexcept { return number_; }

 private:
  const char* type_;
  const void* data_;
  std::size_t size_;
  const application_rows* next_;
  std::uint64_t number_ = next_scope_number();
};

}  // namespace tessera
