// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

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
template <class Payload>
void fuzz_payload(ConstBytes in) {
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

/// Any bytes, as what may stand on a connection after the handshake.
inline void fuzz_frame(ConstBytes in) {
  fuzz_header(in);
  if (in.size() >= wire::header_bytes) {                                   // as from who can compute a checksum
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
