// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_LIBTORCH)
#error "chorale: this header is of the component libtorch. Try: add chorale::libtorch to target_link_libraries()"
#endif

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#if __has_include(<torch/torch.h>)
#include <torch/torch.h>
#else
#error "chorale: <torch/torch.h> is not on the include path. Try: apt-get install libtorch-dev, or CHORALE_LIBTORCH"
#endif

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale::libtorch {

/// The sizes of a tensor as a sentence names them: (64, 1, 28, 28), or () of one number.
inline std::string text_of(at::IntArrayRef sizes) {
  auto text = std::string{"("};
  for (std::size_t i = 0; i < sizes.size(); ++i) text.append(i == 0 ? "" : ", ") += std::to_string(sizes[i]);
  return text + ")";
}

namespace detail {

template <class T> constexpr auto element_type() {
  using U = std::remove_const_t<T>;
  static_assert(std::is_same_v<U, float> || std::is_same_v<U, double> || std::is_same_v<U, int> ||
                    std::is_same_v<U, std::int64_t> || std::is_same_v<U, std::uint8_t>,
                "chorale: libtorch::tensor takes float, double, int, std::int64_t and std::uint8_t");
  if constexpr (std::is_same_v<U, float>) return torch::kFloat32;
  else if constexpr (std::is_same_v<U, double>) return torch::kFloat64;
  else if constexpr (std::is_same_v<U, int>) return torch::kInt32;
  else if constexpr (std::is_same_v<U, std::int64_t>) return torch::kInt64;
  else return torch::kUInt8;
}

/// The sizes with the number that a -1 among them stands for.
inline std::vector<std::int64_t> complete(std::vector<std::int64_t> sizes, std::size_t numbers) {
  auto known   = std::int64_t{1};
  auto unknown = std::size_t{0}, at = sizes.size();
  auto const n   = static_cast<std::int64_t>(numbers);
  auto const bad = [&](std::string const& why) {
    throw BadArgument{
        "a tensor of sizes " + text_of(sizes) + " is asked of " + std::to_string(numbers) + " numbers" + why + ".",
        "sizes whose product is the length of the span; one of them may be -1."};
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] >= 0) known *= sizes[i];
    else if (sizes[i] == -1) ++unknown, at = i;
    else bad(", and " + std::to_string(sizes[i]) + " is no size");
  }
  if (unknown > 1) bad(", and " + std::to_string(unknown) + " of them are -1");
  if (unknown == 0 && known != n) bad(", and they are " + std::to_string(known));
  if (unknown == 1 && (known == 0 || n % known != 0)) bad(", which are no multiple of " + std::to_string(known));
  if (unknown == 1) sizes[at] = n / known;
  return sizes;
}

}  // namespace detail

/// The numbers of a batch as a tensor, without a copy: libtorch::tensor(batch.x, {-1, 1, 28, 28}).
///
/// sizes    row-major; one of them may be -1, and is what the others leave
/// keeps    a view of the numbers, which outlive it. They are the data set's: operations in place are not for this tensor
/// throws   BadArgument when the sizes do not fit
template <class T> torch::Tensor tensor(Span<T> numbers, std::vector<std::int64_t> sizes) {
  auto const options = torch::TensorOptions{}.dtype(detail::element_type<T>());
  return torch::from_blob(const_cast<std::remove_const_t<T>*>(numbers.data()),
                          detail::complete(std::move(sizes), numbers.size()), options);
}

}  // namespace chorale::libtorch
