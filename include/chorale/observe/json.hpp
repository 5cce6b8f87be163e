// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error \
    "chorale: <nlohmann/json.hpp> is not on the include path. Try: apt-get install nlohmann-json3-dev \
(Debian), dnf install json-devel (Fedora), brew install nlohmann-json (Homebrew) or vcpkg install \
nlohmann-json"
#endif

#include <chorale/core/text.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// What a JSON text of anyone may be.
struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t depth = 32;  // objects and arrays in one another
};

/// Throws an error with what is wrong with a JSON text, as a part of a sentence, and what to try. The second is empty
/// where nothing is known but what the text should have been.
using JsonFault = std::function<void(std::string const& what, std::string const& what_to_try)>;

namespace detail {

/// Takes the events of nlohmann::json::sax_parse, and checks that the text is JSON, not too deep, with no key twice.
class JsonCheck {
 public:
  JsonCheck(std::size_t depth, JsonFault const& fault) : depth_{depth}, fault_{fault} {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t) { return true; }
  bool number_unsigned(std::uint64_t) { return true; }
  bool number_float(double, std::string const&) { return true; }
  bool string(std::string const&) { return true; }
  bool binary(auto const&) { return true; }

  bool key(std::string const& text) {
    if (!keys_.back().insert(text).second) fault_("the key " + in_quotes(text) + " is there twice", "one of the two.");
    return true;
  }
  bool start_object(std::size_t) { return deeper(); }
  bool start_array(std::size_t) { return deeper(); }
  bool end_object() { return keys_.pop_back(), true; }
  bool end_array() { return keys_.pop_back(), true; }

  bool parse_error(std::size_t byte, std::string const&, std::exception const&) {
    fault_("it is not JSON from byte " + std::to_string(byte) + " on", {});
    return false;
  }

 private:
  bool deeper() {
    if (keys_.size() == depth_) fault_("it is deeper than " + std::to_string(depth_) + " levels", {});
    keys_.emplace_back();
    return true;
  }

  std::size_t depth_;
  JsonFault const& fault_;
  std::vector<std::set<std::string>> keys_;  // of each object or array that is open
};

}  // namespace detail

/// The value of a JSON text that may come from anyone.
///
/// cost    memory in proportion to the text, which is bounded
/// throws  what fault throws: when the text is not JSON, too large or too deep, has a key twice or a zero byte
inline nlohmann::json parse_json(std::string_view text, JsonLimits limits, JsonFault const& fault) {
  if (text.size() > limits.bytes)
    fault(std::to_string(text.size()) + " bytes, above the limit of " + std::to_string(limits.bytes), "a smaller one.");
  if (auto const zero = text.find('\0'); zero != text.npos)  // at which the parser would stop in silence
    fault("it has a zero byte, at byte " + std::to_string(zero), {});
  auto check = detail::JsonCheck{limits.depth, fault};
  nlohmann::json::sax_parse(text, &check);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace chorale
