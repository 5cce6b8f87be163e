// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ranges>
#include <type_traits>

namespace chorale {

/// Data that is sent as its bytes to a function in another process, or back from it: a number, or a struct of them. No
/// pointers and no views: the memory that they refer to is not sent.
template <class T>
concept PlainData = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::ranges::view<T>;

}  // namespace chorale
