// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/wire/codec.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorale::wire {

inline constexpr std::size_t max_host_bytes = 63, max_operation_bytes = 127, max_reason_bytes = 255;

namespace detail {

/// The values of Fault are part of the wire format: new ones are added at the end only.
static_assert(static_cast<int>(Fault::peer_lost) == 0 && static_cast<int>(Fault::not_authentic) == 10 &&
              static_cast<int>(Fault::numeric_fault) == 14);

/// Returns the start of a text, at most `most` bytes. If it was longer, the last three are dots.
inline std::string cut(std::string_view s, std::size_t most) {
  return s.size() <= most ? std::string{s} : std::string{s.substr(0, most - 3)} + "...";
}

inline std::optional<Fault> fault_of(std::uint8_t code) {
  if (code > static_cast<std::uint8_t>(Fault::numeric_fault)) return std::nullopt;
  return static_cast<Fault>(code);
}

}  // namespace detail

/// Payload of an abort frame: the root cause of a loss, as far as the sender knows it.
///
/// keeps   parse() accepts any bytes, and returns nothing unless they are exactly one payload. write() cuts texts that
///         are too long
struct AbortPayload {
  static constexpr std::size_t fixed_bytes = 24;
  static constexpr std::size_t max_bytes   = fixed_bytes + max_host_bytes + max_operation_bytes + max_reason_bytes;

  Loss loss;

  /// Returns the number of bytes written.
  std::size_t write(std::span<std::byte, max_bytes> out) const {
    auto const host      = detail::cut(loss.host, max_host_bytes);
    auto const operation = detail::cut(loss.operation, max_operation_bytes);
    auto const reason    = detail::cut(loss.reason, max_reason_bytes);
    auto to              = Writer{out};
    to.number(static_cast<std::uint8_t>(loss.fault));
    to.number(static_cast<std::uint8_t>(host.size()));
    to.number(static_cast<std::uint8_t>(operation.size()));
    to.number(static_cast<std::uint8_t>(reason.size()));
    to.number(static_cast<std::int32_t>(loss.rank));
    to.number(loss.sequence);
    to.number(loss.step);
    to.text(host);
    to.text(operation);
    to.text(reason);
    return to.size();
  }

  static std::optional<AbortPayload> parse(ConstBytes in) {
    auto from            = Reader{in};
    auto const fault     = detail::fault_of(from.number<std::uint8_t>());
    auto const host      = from.number<std::uint8_t>();
    auto const operation = from.number<std::uint8_t>();
    auto const reason    = from.number<std::uint8_t>();
    auto result          = AbortPayload{};
    result.loss.rank     = from.number<std::int32_t>();
    result.loss.sequence = from.number<std::uint64_t>();
    result.loss.step     = from.number<std::uint64_t>();
    if (!fault || host > max_host_bytes || operation > max_operation_bytes || result.loss.rank < -1)
      return std::nullopt;
    result.loss.fault     = *fault;
    result.loss.host      = from.text(host);
    result.loss.operation = from.text(operation);
    result.loss.reason    = from.text(reason);
    if (!from.at_end()) return std::nullopt;
    return result;
  }
};

/// Payload of a heartbeat: it shows that the process lives, and the position of its training thread.
struct HeartbeatPayload {
  static constexpr std::size_t fixed_bytes = 25;
  static constexpr std::size_t max_bytes   = fixed_bytes + max_host_bytes;

  std::uint64_t sequence    = 0;  // of the operation last announced
  std::uint64_t step        = 0;
  std::uint64_t bytes_moved = 0;  // sent and received since connect()
  std::string host;

  /// Returns the number of bytes written.
  std::size_t write(std::span<std::byte, max_bytes> out) const {
    auto const name = detail::cut(host, max_host_bytes);
    auto to         = Writer{out};
    to.number(sequence);
    to.number(step);
    to.number(bytes_moved);
    to.number(static_cast<std::uint8_t>(name.size()));
    to.text(name);
    return to.size();
  }

  static std::optional<HeartbeatPayload> parse(ConstBytes in) {
    auto from          = Reader{in};
    auto result        = HeartbeatPayload{};
    result.sequence    = from.number<std::uint64_t>();
    result.step        = from.number<std::uint64_t>();
    result.bytes_moved = from.number<std::uint64_t>();
    auto const name    = from.number<std::uint8_t>();
    if (name > max_host_bytes) return std::nullopt;
    result.host = from.text(name);
    if (!from.at_end()) return std::nullopt;
    return result;
  }
};

}  // namespace chorale::wire
