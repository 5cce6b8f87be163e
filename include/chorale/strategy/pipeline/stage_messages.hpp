// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/messages.hpp>
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
/// keeps   each message has a tag of its own, so that none waits for another
template <Endpoint E>
class StageMessages final : public pipelines::Messages {
 public:
  /// at      outlives it
  /// first   tag of message 0; those behind it are not used otherwise
  StageMessages(E& at, Tag first) : at_{&at}, first_{static_cast<std::uint32_t>(first)} {}

  std::size_t send(int stage, std::uint32_t number, ConstBytes out) override {
    return add(at_->send(stage, Tag{first_ + number}, out));
  }
  std::size_t receive(int stage, std::uint32_t number, Bytes in) override {
    return add(at_->recv(stage, Tag{first_ + number}, in));
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
    typename E::pending pending;
  };

  std::size_t add(typename E::pending pending) {
    under_way_.push_back({++last_, std::move(pending)});
    return last_;
  }
  /// Looks at all messages once. Returns true if one is over.
  bool look() {
    auto moved = false;
    for (std::size_t i = 0; i < under_way_.size();) {
      if (!under_way_[i].pending.done()) {
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
  template <class F>
  void wait_until(F const& holds) {
    for (;;) {
      auto const moved = look();
      if (holds()) return;
      if (!moved) rest(*at_, std::chrono::milliseconds{1});
    }
  }

  E* at_;
  std::uint32_t first_;
  std::size_t last_ = 0;
  std::vector<One> under_way_;
};

}  // namespace chorale::detail
