// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/plain_data.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace chorale {

namespace detail {

template <class T> inline constexpr bool is_plain_sequence                     = false;
template <PlainData T> inline constexpr bool is_plain_sequence<std::vector<T>> = !std::is_same_v<T, bool>;
template <> inline constexpr bool is_plain_sequence<std::string>               = true;

/// True if a T can be an argument or the result of a closure.
template <class T> concept Travels = PlainData<T> || is_plain_sequence<T>;

/// Values one after the other, as they are stored in memory; a sequence after its length.
class Packed {
 public:
  template <Travels T> void put(T const& value) {
    if constexpr (is_plain_sequence<T>) {
      put(std::uint64_t{value.size()});
      append(std::as_bytes(Span<typename T::value_type const>{value}));
    } else {
      append(std::as_bytes(Span<T const>{&value, 1}));
    }
  }

  std::vector<std::byte> bytes;

 private:
  void append(ConstBytes more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
};

class Unpacked {
 public:
  explicit Unpacked(ConstBytes bytes) : left_{bytes} {}

  /// throws  Disagreement when fewer bytes are left
  template <Travels T> T take() {
    if constexpr (is_plain_sequence<T>) {
      using Value      = typename T::value_type;
      auto const count = take<std::uint64_t>();
      if (count > left_.size() / sizeof(Value)) too_short(count, sizeof(Value));
      auto values = T(count, Value{});
      if (count != 0) std::memcpy(values.data(), next(count * sizeof(Value)), count * sizeof(Value));
      return values;
    } else {
      auto bytes = std::array<std::byte, sizeof(T)>{};
      std::memcpy(bytes.data(), next(sizeof(T)), sizeof(T));
      return std::bit_cast<T>(bytes);
    }
  }

  std::size_t left() const { return left_.size(); }

 private:
  std::byte const* next(std::size_t n) {
    if (n > left_.size()) too_short(n, 1);
    auto const* at = left_.data();
    left_          = left_.subspan(n);
    return at;
  }

  [[noreturn]] void too_short(std::size_t n, std::size_t each) const {
    throw Disagreement{Fault::collective_mismatch,
                       sentence("a closure's message has {} bytes left where {} values of {} bytes were expected.",
                                left_.size(), n, each),
                       "the same program in all processes."};
  }

  ConstBytes left_;
};

constexpr std::uint64_t hash_of_name(std::string_view name) { return Fnv1a<std::uint64_t>{}.add(name).value(); }

/// Position of a pass over one share of a dataset.
struct DataPosition {
  std::uint64_t dataset = 0;  // hash of its name; 0: none
  std::uint64_t pass = 0, element = 0;

  friend bool operator==(DataPosition const&, DataPosition const&) = default;
};

inline constexpr std::size_t most_datasets   = 4;                       // of one closure
inline constexpr std::uint64_t closure_magic = 0x3130'4c43'6c72'6863;   // "chrlCL01"
inline constexpr std::uint64_t closure_limit = std::uint64_t{1} << 32;  // bytes of arguments, or of a result

/// Request of a coordinator to a worker, as its bytes are sent; the arguments follow.
struct ClosureRequest {
  std::uint64_t magic   = closure_magic;
  std::uint64_t number  = 0;                       // of the closure: 1, 2, ..
  std::uint64_t closure = 0;                       // hash of its name; 0: leave
  std::uint64_t bytes   = 0;                       // of the arguments
  std::int32_t share = 0, shares = 0;              // of the datasets
  std::array<DataPosition, most_datasets> data{};  // in the order of the parameters
};

/// Reply of a worker to a ClosureRequest; the result follows, or the text of an error.
struct ClosureReply {
  std::uint64_t magic  = closure_magic;
  std::uint64_t number = 0;
  std::uint64_t bytes  = 0;  // of the result, or the text
  std::int32_t failed  = 0;  // exit code of the error; 0 for none
  std::int32_t unused  = 0;
  std::array<DataPosition, most_datasets> data{};  // after the closure
};

static_assert(std::is_trivially_copyable_v<ClosureRequest> && std::is_trivially_copyable_v<ClosureReply>);

/// Returns an error that was received in a message, with the type that belongs to its exit code.
///
/// what    text of what() on the worker
inline std::exception_ptr error_from(int code, std::string const& where, std::string what) {
  constexpr auto mark = std::string_view{"chorale: "}, hint = std::string_view{"\n         Try: "};
  if (what.starts_with(mark)) what.erase(0, mark.size());
  auto to_try = std::string{};
  if (auto const at = what.find(hint); at != what.npos) {
    to_try = what.substr(at + hint.size());
    what.erase(at);
  }
  to_try          = printable(to_try);
  auto const text = where + ": " + printable(what);
  switch (code) {
    case 2: return std::make_exception_ptr(BadArgument{text, to_try});
    case 3: return std::make_exception_ptr(Disagreement{Fault::collective_mismatch, text, to_try});
    case 4: return std::make_exception_ptr(NumericFault{text, to_try});
    case 5: return std::make_exception_ptr(FileFault{text, to_try});
    default: return std::make_exception_ptr(Error{text, to_try});
  }
}

}  // namespace detail
}  // namespace chorale
