// SPDX-License-Identifier: Apache-2.0
//
// What it costs that ranks which are threads compare what they do.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/transport/common/owner_thread.hpp>
#include <chorale/transport/common/shared_operation_log.hpp>
#include <chorale/transport/local.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

namespace bench {

/// Nanoseconds of the parts of the check.
///
/// announce   of an operation, once for each
/// label      of a message or an exposure, at each end, and their comparison
/// owner      of the question whose endpoint it is, in each call; announce has it, too
struct AgreementCost {
  double announce = 0, label = 0, owner = 0;
};

/// The shortest of ten times of a call, each over many.
template <class Call> double nanoseconds_of(Call call) {
  constexpr auto calls = std::uint32_t{100'000};
  auto best            = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 10; ++round) {
    auto const begin = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < calls; ++i) call(i);
    auto const took = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin);
    best            = std::min(best, took.count() / calls);
  }
  return best;
}

inline AgreementCost agreement_cost() {
  using namespace chorale;
  auto cost      = AgreementCost{};
  auto endpoints = LocalTransport{}.connect(Group::all_local(2));
  auto const sum = [](std::uint32_t tag) {
    return Operation{Collective::all_reduce, Op::sum, Element::f32, 1'000, Tag{tag}, CallSite::here()};
  };
  cost.announce = nanoseconds_of([&](std::uint32_t i) { announce(endpoints[0], sum(i)); });

  auto const logs = std::make_unique<detail::SharedOperationLog<local::SharedState::remembered>[]>(2);
  for (std::uint32_t tag = 0; tag < 16; ++tag)  // as many as there are under way
    for (std::size_t rank : {0U, 1U}) logs[rank].add(sum(tag), nullptr);
  auto agree = std::uint32_t{0};
  cost.label = nanoseconds_of([&](std::uint32_t i) {
    auto const tag = Tag{i % 16};
    agree += logs[0].label_of(tag, 1).agrees_with(logs[1].label_of(tag, 0)) ? 1 : 0;
  });

  CHORALE_ENSURES(agree == 10 * 100'000, "labels of one operation differ");

  auto owner = OwnerThread{};
  cost.owner = nanoseconds_of([&](std::uint32_t) { auto const use = owner.use(0, [] { return true; }); });
  return cost;
}

}  // namespace bench
