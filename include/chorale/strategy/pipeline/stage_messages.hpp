// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/transport/common/told_error.hpp>
#include <chorale/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Messages between the stages of a pipeline, over an endpoint whose ranks are the stages.
///
/// keeps   each message has a separate tag, so that none waits for another
template <Endpoint E> class StageMessages final : public pipelines::Messages {
 public:
  /// at      outlives it
  /// first   tag of message 0; the tags after it are not used otherwise
  /// me      this rank among all ranks, for errors
  StageMessages(E& at, Tag first) : StageMessages{at, first, at.rank()} {}
  StageMessages(E& at, Tag first, Rank me) : at_{&at}, first_{static_cast<std::uint32_t>(first)}, me_{me} {}

  std::size_t send(int stage, std::uint32_t number, ConstBytes out) override {
    return add(at_->rank(), stage, out.size(), [&] { return at_->send(stage, Tag{first_ + number}, out); });
  }
  std::size_t receive(int stage, std::uint32_t number, Bytes in) override {
    return add(stage, at_->rank(), in.size(), [&] { return at_->recv(stage, Tag{first_ + number}, in); });
  }
  void wait(std::size_t message) override {
    wait_until([&] {
      for (auto const& one : under_way_)
        if (one.number == message) return false;
      return true;
    });
  }
  void wait_all() override {
    wait_until([&] { return under_way_.empty(); });
  }
  void go_on() override { look(); }

  /// Forgets all messages, as the endpoint failed; and uses another one from now on.
  void forget() { under_way_.clear(); }
  void move_to(E& at) { at_ = &at; }

 private:
  struct One {
    std::size_t number;
    int from, to;  // stages
    std::size_t bytes;
    typename E::pending pending{};

    std::string text() const {
      return sentence("a message of {} bytes along the axis \"stage\", from stage {} to stage {}", bytes, from, to);
    }
  };

  template <class Begin> std::size_t add(int from, int to, std::size_t bytes, Begin const& begin) {
    auto one = One{++last_, from, to, bytes};
    within(one, [&] { one.pending = begin(); });
    under_way_.push_back(std::move(one));
    return last_;
  }
  template <class F> void within(One const& one, F&& f) const {
    try {
      f();
    } catch (PeerLost const& lost) { throw_within(me_, lost, one.text()); }
  }
  /// Looks at all messages once. Returns true if one is over.
  bool look() {
    auto moved = false;
    for (std::size_t i = 0; i < under_way_.size();) {
      auto done = false;
      within(under_way_[i], [&] { done = under_way_[i].pending.done(); });
      if (!done) {
        ++i;
        continue;
      }
      if (i + 1 != under_way_.size()) under_way_[i] = std::move(under_way_.back());
      under_way_.pop_back();
      moved = true;
    }
    return moved;
  }
  /// Looks at all messages until something holds.
  template <class F> void wait_until(F const& holds) {
    for (;;) {
      auto const moved = look();
      if (holds()) return;
      if (!moved) rest(*at_, std::chrono::milliseconds{1});
    }
  }

  E* at_;
  std::uint32_t first_;
  Rank me_;
  std::size_t last_ = 0;
  std::vector<One> under_way_;
};

}  // namespace chorale::detail
