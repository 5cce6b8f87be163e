// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/tcp/position_check.hpp>
#include <chorale/transport/wire/frame.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::test {

/// A payload that parses is written as a payload that parses to the same. The bytes may differ where a text had
/// characters that are not shown.
template <class Payload> void fuzz_payload(ConstBytes in) {
  auto const parsed = Payload::parse(in);
  if (!parsed) return;
  auto room          = std::array<std::byte, Payload::max_bytes>{};
  auto const written = ConstBytes{room}.first(parsed->write(room));
  must(written.size() == in.size(), "a payload has another size when it is written again");
  auto const again = Payload::parse(written);
  must(again.has_value(), "what was written does not parse");
  auto once_more = std::array<std::byte, Payload::max_bytes>{};
  must(std::ranges::equal(written, ConstBytes{once_more}.first(again->write(once_more))),
       "a payload is not the same after it was written and parsed");
}

inline void fuzz_header(ConstBytes in) {
  constexpr std::uint64_t limit = 1 << 20;
  auto const parsed             = wire::parse(in, limit);
  if (in.size() < wire::header_bytes) must(parsed.result != wire::Parse::ok, "a frame without a whole header");
  if (parsed.result != wire::Parse::ok && parsed.result != wire::Parse::too_large) return;
  must((parsed.header.length > limit) == (parsed.result == wire::Parse::too_large), "a length that is not allowed");
  auto again = wire::HeaderBytes{};
  write(parsed.header, again);
  must(std::ranges::equal(in.first(wire::header_bytes), again), "two headers mean the same");
  for (std::size_t n = 0; n < wire::header_bytes; ++n)
    must(wire::parse(in.first(n), limit).result == wire::Parse::need_more, "part of a header is not a part");
}

/// The last operations of a rank that ends, as from who can compute checksums: headers, and 12 bytes before them.
inline void fuzz_closing(ConstBytes in) {
  constexpr auto head = std::size_t{12};
  auto forged         = std::vector<std::byte>(head);
  std::copy_n(in.rbegin(), std::min(in.size(), head), forged.begin());
  for (; in.size() >= wire::header_bytes; in = in.subspan(wire::header_bytes)) {
    forged.insert(forged.end(), in.begin(), in.begin() + wire::header_bytes);
    auto const last = Bytes{forged}.last(wire::header_bytes);
    wire::Writer{last.last(4)}.number(crc32c(ConstBytes{last}.first(wire::header_bytes - 4)));
  }
  auto const said = detail::ClosingMessage::parse(forged);
  if (!said) return;
  must(said->write().size() == forged.size(), "the last operations have another size when they are written again");
  must(said->last.size() <= 2 * detail::ClosingMessage::most, "more operations than a rank sends when it ends");
  static auto const mine = [] {
    auto log = detail::OperationLog{};
    log.add({.collective = Collective::all_reduce, .element = Element::f32, .count = 4, .tag = Tag{2}});
    return log;
  }();
  if (auto const other = said->difference({0, 1}, mine)) must(!other->reason.empty(), "a difference without a text");
}

/// Any bytes, as what may stand on a connection after the handshake.
inline void fuzz_frame(ConstBytes in) {
  fuzz_header(in);
  fuzz_closing(in);
  if (in.size() >= wire::header_bytes) {  // as from who can compute a checksum
    auto forged = wire::HeaderBytes{};
    std::ranges::copy(in.first(wire::header_bytes), forged.begin());
    wire::Writer{Bytes{forged}.last(4)}.number(crc32c(ConstBytes{forged}.first(wire::header_bytes - 4)));
    fuzz_header(forged);
    must(wire::parse(forged, 0).result != wire::Parse::need_more, "a whole header is not whole");
  }
  auto const payload = in.subspan(std::min(in.size(), wire::header_bytes));
  for (auto const part : {in, payload}) {
    fuzz_payload<wire::AbortPayload>(part);
    fuzz_payload<wire::HeartbeatPayload>(part);
    auto const plan = wire::PlanPayload::parse(part);
    if (!plan) continue;
    must(plan->write().size() == part.size(), "a plan has another size when it is written again");
    must(!wire::first_difference(plan->lines, {}).empty(), "a difference has no text");
  }
}

}  // namespace chorale::test
