// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/posted_receives.hpp>
#include <chorale/transport/tcp/send_queue.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <cstring>

namespace chorale::detail {

/// What a rank sends to itself: one copy, when both sides are there.
class ToSelf {
 public:
  explicit ToSelf(Rank me) : ends_{me, me, 0} {}

  WantedList sends, recvs;                                                 // of the first, `left` is only read

  /// throws  LinkFault
  bool meet() {
    auto any = false;
    for (int place = 0; place < recvs.places(); ++place) {
      if (recvs.is_over(place, recvs[place].turn)) continue;
      auto& in       = recvs[recvs.oldest(recvs[place].tag)];
      auto const out = sends.oldest(in.tag);
      if (out == WantedList::none) continue;
      auto head        = wire::Header{};
      head.sequence    = sends[out].announced.sequence;
      head.fingerprint = sends[out].announced.fingerprint;
      head.count       = sends[out].size;
      expect_same(ends_, in, head, sends[out].size, false);
      if (in.size != 0) std::memcpy(in.left.data(), sends[out].left.data(), in.size);
      sends.finish(out);
      recvs.finish(recvs.oldest(in.tag));
      any = true;
    }
    return any;
  }

 private:
  Ends ends_;
};

}  // namespace chorale::detail
