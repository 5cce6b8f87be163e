// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <chorale/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace chorale {

/// Address that a task listens on: "node3:2222", "10.0.0.7:2222", "[::1]:2222".
///
/// keeps   a text that parses has no character with a special meaning in a line of text or on a terminal
struct HostPort {
  static constexpr std::size_t max_host = 253;  // bytes, as in the domain name system

  std::string host;  // in lower case, without brackets
  int port = 0;      // 1 to 65535

  /// where   beginning of an error: "TF_CONFIG: cluster.worker[2]"
  /// throws  BadArgument
  static HostPort parse(std::string_view text, std::string const& where = "address") {
    auto const fail = [&](std::string const& what, std::string const& what_to_try) {
      throw BadArgument{where + ": " + in_quotes(text) + " " + what + ".", what_to_try};
    };
    auto const bracket = text.starts_with('[') ? text.find(']') : 0;  // colons before ] start no port
    if (bracket == text.npos) fail("has a [ without a ]", "\"[::1]:2222\".");
    auto const colon = text.find(':', bracket);
    if (colon == text.npos) fail("has no port", "the host, a colon and the port: \"10.0.0.7:2222\".");
    auto const host = text.substr(0, colon), port = text.substr(colon + 1);
    if (bracket == 0 && port.find(':') != port.npos)
      fail("has more than one colon, and no brackets", "\"[::1]:2222\" for an IPv6 address.");
    if (!is_host(host)) fail("has no name or number of a host before the port", "\"10.0.0.7:2222\".");
    auto const number = whole_number(port, 65'535);
    if (!number || *number == 0)
      fail("has the port " + in_quotes(port) + ", and a port is a number from 1 to 65535", "another port.");
    auto name = std::string{bracket == 0 ? host : host.substr(1, host.size() - 2)};
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    return {std::move(name), *number};
  }

  std::string text() const {
    return (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + std::to_string(port);
  }

  friend bool operator==(HostPort const&, HostPort const&) = default;

 private:
  static bool is_host(std::string_view host) {
    auto const in_brackets = host.starts_with('[');
    if (in_brackets && !host.ends_with(']')) return false;
    if (in_brackets) host = host.substr(1, host.size() - 2);
    if (in_brackets && host.find(':') == host.npos) return false;
    return !host.empty() && host.size() <= max_host && std::ranges::all_of(host, [&](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
             c == '_' || (in_brackets && (c == ':' || c == '%'));
    });
  }
};

}  // namespace chorale
