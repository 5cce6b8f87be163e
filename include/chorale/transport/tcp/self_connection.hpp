// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/posted_receives.hpp>
#include <chorale/transport/tcp/send_queue.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <cstring>

namespace chorale::tcp {

/// Messages of a rank to itself: copied once, when the send and the receive are posted.
class SelfConnection {
 public:
  explicit SelfConnection(Rank me) : ends_{me, me, 0} {}

  PostedReceives sends, recvs;                                             // `left` of a send is only read

  /// Completes sends and receives that match; true if there were any. Throws ConnectionFault.
  bool meet() {
    auto any = false;
    for (int place = 0; place < recvs.places(); ++place) {
      if (recvs.is_over(place, recvs[place].turn)) continue;
      auto& in       = recvs[recvs.oldest(recvs[place].tag)];
      auto const out = sends.oldest(in.tag);
      if (out == PostedReceives::none) continue;
      auto head        = wire::Header{};
      head.sequence    = sends[out].announced.sequence;
      head.fingerprint = sends[out].announced.fingerprint;
      head.count       = sends[out].size;
      detail::expect_same(ends_, in, head, sends[out].size, false);
      if (in.size != 0) std::memcpy(in.left.data(), sends[out].left.data(), in.size);
      sends.finish(out);
      recvs.finish(recvs.oldest(in.tag));
      any = true;
    }
    return any;
  }

 private:
  detail::Ends ends_;
};

}  // namespace chorale::tcp
