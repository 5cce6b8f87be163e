// SPDX-License-Identifier: Apache-2.0
//
// Inputs near those that are known: for readers of files, and of messages, from anyone.
#pragma once

#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

using Input = std::vector<std::byte>;

inline Input input_of(std::string_view text) {
  auto const all = std::as_bytes(Span<char const>{text});
  return {all.begin(), all.end()};
}

/// The files of test/fuzz/corpus/NAME, in the order of their names.
inline std::vector<Input> corpus(std::string const& name) {
  auto paths = std::vector<std::filesystem::path>{};
  for (auto const& entry : std::filesystem::directory_iterator{"test/fuzz/corpus/" + name})
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  auto inputs = std::vector<Input>{};
  for (auto const& path : paths) {
    auto file = std::ifstream{path, std::ios::binary};
    inputs.push_back(input_of(std::string{std::istreambuf_iterator<char>{file}, {}}));
  }
  return inputs;
}

/// Changes inputs: bits, bytes, lengths, numbers where counts often stand, parts of other inputs.
class Mutation {
 public:
  /// source  SplitMix64: Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014
  Mutation(std::uint64_t seed, std::uint64_t number) : state_{seed * 0x9E3779B97F4A7C15 + number} { state_ = bits(); }

  /// One of the inputs with one to eight changes; at most 1024 bytes more than it had.
  Input of(std::vector<Input> const& inputs) {
    if (inputs.empty()) return random_bytes(64);
    auto bytes      = inputs[below(inputs.size())];
    auto const most = bytes.size() + 1024;
    for (auto left = std::size_t{1} << below(4); left > 0; --left) {
      change(bytes, inputs[below(inputs.size())]);
      if (bytes.size() > most) bytes.resize(most);
    }
    return bytes;
  }

 private:
  std::uint64_t bits() {
    auto z = state_ += 0x9E3779B97F4A7C15;
    z      = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z      = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }

  Input random_bytes(std::size_t most) {
    auto bytes = Input(below(most) + 1);
    for (auto& byte : bytes) byte = static_cast<std::byte>(bits());
    return bytes;
  }
  /// A part of some bytes: mostly short.
  ConstBytes part(ConstBytes of) {
    auto const from = below(of.size());
    auto const left = of.size() - from;
    return of.subspan(from, 1 + below(below(4) == 0 ? left : std::min<std::size_t>(left, 8)));
  }
  static void insert(Input& bytes, std::size_t at, ConstBytes what) {
    auto const copy = Input(what.begin(), what.end());  // it may be a part of bytes
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), copy.begin(), copy.end());
  }

  void change(Input& bytes, Input const& other) {
    auto const kind = below(10);
    if (bytes.empty() || kind == 0) return insert(bytes, below(bytes.size() + 1), random_bytes(8));
    auto const at = below(bytes.size());
    switch (kind) {
      case 1: bytes[at] ^= static_cast<std::byte>(1U << below(8)); break;
      case 2: bytes[at] = static_cast<std::byte>(bits()); break;
      case 3: erase(bytes, part(bytes)); break;
      case 4: bytes.resize(at); break;
      case 5: insert(bytes, at, part(bytes)); break;  // a part twice
      case 6:
        if (!other.empty()) insert(bytes, at, part(other));
        break;
      case 7: splice(bytes, at, other); break;
      case 8: put_number(bytes, at); break;
      default: put_digits(bytes, at);
    }
  }
  void erase(Input& bytes, ConstBytes what) {
    auto const from = bytes.begin() + (what.data() - bytes.data());
    bytes.erase(from, from + static_cast<std::ptrdiff_t>(what.size()));
  }
  /// The first bytes of one input, the last of another.
  void splice(Input& bytes, std::size_t at, Input const& other) {
    auto const end = ConstBytes{other}.subspan(below(other.size() + 1));
    bytes.resize(at);
    bytes.insert(bytes.end(), end.begin(), end.end());
  }
  /// A number of 1, 2, 4 or 8 bytes at which a sum, a product or a sign goes wrong.
  void put_number(Input& bytes, std::size_t at) {
    auto const width = std::size_t{1} << below(4);
    auto number      = below(2) == 0 ? std::uint64_t{1} << below(64) : bytes.size();
    switch (below(6)) {
      case 0: --number; break;
      case 1: ++number; break;
      case 2: number = ~number; break;
      case 3: number = 0; break;
      default: break;
    }
    auto const from_back = below(2) == 0;  // the byte that counts most comes first
    for (std::size_t i = 0; i < width && at + i < bytes.size(); ++i)
      bytes[at + i] = static_cast<std::byte>(number >> 8 * (from_back ? width - 1 - i : i));
  }
  /// Digits of a text, from the first one after `at` on, become another number.
  void put_digits(Input& bytes, std::size_t at) {
    static constexpr auto numbers = std::array<std::string_view, 20>{"0",
                                                                     "1",
                                                                     "-1",
                                                                     "-0",
                                                                     "9",
                                                                     "255",
                                                                     "256",
                                                                     "65536",
                                                                     "2147483647",
                                                                     "2147483648",
                                                                     "4294967296",
                                                                     "4294967295",
                                                                     "9223372036854775807",
                                                                     "9223372036854775808",
                                                                     "18446744073709551615",
                                                                     "18446744073709551616",
                                                                     "1e999",
                                                                     "0.5",
                                                                     "00000000000000000000000001",
                                                                     "99999999999999999999999999999999999999"};
    auto const is_digit           = [](std::byte b) { return b >= std::byte{'0'} && b <= std::byte{'9'}; };
    auto const from = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), is_digit);
    auto const to   = std::find_if_not(from, bytes.end(), is_digit);
    if (from == bytes.end()) return put_number(bytes, at);
    auto const place = static_cast<std::size_t>(from - bytes.begin());
    bytes.erase(from, to);
    insert(bytes, place, input_of(numbers[below(numbers.size())]));
  }

  std::uint64_t state_;
};

/// Gives target(ConstBytes) nothing, the inputs as they are, then `count` changed ones, a function of (inputs, seed).
///
/// throws  std::logic_error with what the target threw, and the bytes for which it did
template <class Target>
void mutate(std::vector<Input> const& inputs, std::uint64_t seed, std::uint64_t count, Target&& target) {
  auto const give = [&](Input const& bytes, std::string const& which) {
    try {
      target(ConstBytes{bytes});
    } catch (std::exception const& why) {
      auto shown = std::string{};
      for (auto const byte : bytes)
        shown.append("\\x")
            .append(1, "0123456789abcdef"[std::to_integer<int>(byte) >> 4])
            .append(1, "0123456789abcdef"[std::to_integer<int>(byte) & 15]);
      throw std::logic_error{which + ": " + why.what() + ": $'" + shown + "'"};  // printf '%b' of a shell
    }
  };
  give({}, "no bytes");
  for (std::size_t i = 0; i < inputs.size(); ++i) give(inputs[i], "input " + std::to_string(i));
  for (std::uint64_t i = 0; i < count; ++i)
    give(Mutation{seed, i}.of(inputs), "seed " + std::to_string(seed) + ", change " + std::to_string(i));
}

}  // namespace chorale::test
