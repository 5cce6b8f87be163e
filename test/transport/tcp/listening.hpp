// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/common/forwarding_endpoint.hpp>
#include <chorale/transport/local.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test {

/// A LocalEndpoint that notes what it was told.
class ListeningEndpoint : public ForwardingEndpoint<LocalEndpoint> {
 public:
  ListeningEndpoint(LocalEndpoint at, std::shared_ptr<std::vector<std::string>> heard)
      : ForwardingEndpoint{std::move(at)}, heard_{std::move(heard)} {}

  void announce(Operation const& operation) { heard_->push_back("announce " + operation.text()); }
  void begin_step(std::uint64_t step) { heard_->push_back("step " + std::to_string(step)); }
  void fail(std::string const& why) {
    heard_->push_back("fail " + why);
    at_.fail(why);
  }
  Bytes memory() { return std::as_writable_bytes(Span<float>{arena_}); }

 private:
  std::shared_ptr<std::vector<std::string>> heard_;
  std::vector<float> arena_ = {0.0F, 0.0F};
};

struct ListeningTransport {
  using endpoint = ListeningEndpoint;

  std::shared_ptr<std::vector<std::string>> heard = std::make_shared<std::vector<std::string>>();

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  std::vector<endpoint> connect(Group const& group) const {
    auto endpoints = std::vector<endpoint>{};
    for (auto& at : LocalTransport{}.connect(group)) endpoints.emplace_back(std::move(at), heard);
    return endpoints;
  }
};

/// Tells an endpoint all there is to tell, and returns what the transport below has heard of it.
template <class E> std::vector<std::string> told(E& at, std::vector<std::string> const& heard) {
  announce(at, Operation{Collective::broadcast, Op::sum, Element::f32, 4, Tag{7}, {}});
  begin_step(at, 12);
  fail(at, "enough.");
  return heard;
}

inline std::vector<std::string> const everything = {"announce broadcast of 4 float, tag 7", "step 12", "fail enough."};

}  // namespace chorale::test
