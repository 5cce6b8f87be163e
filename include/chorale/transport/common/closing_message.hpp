// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chorale::detail {

/// The last operations of a rank, which it sends when it ends: the payload of a goodbye frame. See docs/55-wire.md.
///
/// sequence   of the last operation; 0 for none
/// history    LoggedOperation::history of the last operation
/// last       the last operations, at most 16, in their order
struct ClosingMessage {
  static constexpr std::uint64_t most = 16;

  std::uint64_t sequence = 0;
  std::uint32_t history  = 0;
  std::vector<wire::Header> last{};

  static ClosingMessage after(OperationLog const& announced) {
    auto const end = announced.last();
    auto said      = ClosingMessage{end, announced.at(end).history, {}};
    for (auto i = end - std::min(end, most) + 1; i <= end; ++i) describe(said.last.emplace_back(), announced.at(i));
    return said;
  }

  std::vector<std::byte> write() const {
    auto bytes = std::vector<std::byte>(fixed_bytes + last.size() * wire::header_bytes);
    auto to    = wire::Writer{bytes};
    to.number(sequence);
    to.number(history);
    for (auto const& operation : last) {
      auto head = wire::HeaderBytes{};
      wire::write(operation, head);
      to.bytes(head);
    }
    return bytes;
  }

  /// Parses any bytes; empty unless they are exactly one such message.
  static std::optional<ClosingMessage> parse(ConstBytes in) {
    if (in.size() < fixed_bytes || (in.size() - fixed_bytes) % wire::header_bytes != 0) return std::nullopt;
    auto from     = wire::Reader{in};
    auto said     = ClosingMessage{};
    said.sequence = from.number<std::uint64_t>();
    said.history  = from.number<std::uint32_t>();
    for (auto rest = in.subspan(fixed_bytes); !rest.empty(); rest = rest.subspan(wire::header_bytes)) {
      auto const parsed = wire::parse(rest, 0);
      if (parsed.result != wire::Parse::ok || said.last.size() == most) return std::nullopt;
      said.last.push_back(parsed.header);
    }
    return said;
  }

  /// Returns the first of the last operations that differs from this rank's operation with the same number.
  std::optional<ConnectionFault> first_difference(Ends ends, OperationLog const& announced) const {
    for (auto const& theirs : last) {
      auto const& ours = announced.at(theirs.sequence);
      if (ours.sequence != 0 && ours.fingerprint != theirs.fingerprint) return mismatch(ends, theirs, ours);
    }
    return std::nullopt;
  }

  /// Returns how the peer's operations differ from those of this rank, which ends, too; empty if they are the same.
  std::optional<ConnectionFault> difference(Ends ends, OperationLog const& announced) const {
    auto const& ours = announced.at(announced.last());
    if (sequence == ours.sequence && history == ours.history) return std::nullopt;
    if (auto found = first_difference(ends, announced)) return found;
    auto const after = [](Rank rank, std::uint64_t number, std::string const& text) {
      return "rank " + std::to_string(rank) + " ended after operation " + std::to_string(number) +
             (number == 0 ? "" : ", " + text);
    };
    return ConnectionFault{Fault::collective_mismatch,
                     after(ends.peer, sequence, last.empty() ? "" : text_of(last.back())) + ", and " +
                         after(ends.me, ours.sequence, ours.operation.text()) +
                         (sequence == ours.sequence ? "; earlier ones were not the same" : "")};
  }

 private:
  static constexpr std::size_t fixed_bytes = 12;
};

}  // namespace chorale::detail
