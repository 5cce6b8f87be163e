// SPDX-License-Identifier: Apache-2.0
//
// Losses, metrics, rules and precisions that PJRT devices compute, as test/devices/list.hpp says: on the interpreter of
// the tests, beside Cpu.
#include "test/devices/rows.hpp"
#include "test/pjrt/interpreting_plugin.hpp"

#include <chorale/pjrt/tpu.hpp>

#include <catch2/catch.hpp>

#include <tuple>
#include <type_traits>

namespace devices_pjrt_losses {

using namespace chorale;
using namespace chorale::test::devices;

auto const& device() {
  static auto const one = Pjrt::open(test::fake::interpreting_plugin(), {.devices = 1});
  return one;
}

#define LAYER(...)
#define OPTION(...)
#define PART(...)
#define SENTENCE(...)

TEST_CASE("PJRT devices compute losses as Cpu does", "[devices][pjrt]") {
#define LOSS(in_sequential, in_graph, pjrt, ending, ...) \
  , tuple_if_same<pjrt>([] { return Ended<ending, decltype(__VA_ARGS__)>{__VA_ARGS__}; })
#define METRIC(...)
#define RULE(...)
#define PRECISION(...)
  each_part(std::tuple_cat(std::tuple{}
#include "test/devices/list.hpp"
                           ),
            [](auto const& one) { compare(device(), one); });
#undef LOSS
#undef METRIC
}

template <class Of> void compare_metrics() {
#define LOSS(...)
#define METRIC(in_sequential, in_graph, pjrt, of, ...) \
  , tuple_if_same<std::is_same_v<Of, of> ? pjrt : none>([] { return __VA_ARGS__; })
  std::apply([](auto const&... m) { compare(device(), MetricCase{Of{}, m...}); }, std::tuple_cat(std::tuple{}
#include "test/devices/list.hpp"
                                                                                                 ));
#undef METRIC
#undef RULE
}
TEST_CASE("PJRT devices compute metrics as Cpu does", "[devices][pjrt]") {
  compare_metrics<labels>();
  compare_metrics<yes_or_no>();
  compare_metrics<numbers>();
}

TEST_CASE("PJRT devices update by rules as Cpu does", "[devices][pjrt]") {
#define METRIC(...)
  auto const check = [](auto const& one) {
    compare(device(), one);
    compare_ahead(device(), one);
  };
#define RULE(in_sequential, in_graph, pjrt, ...) \
  when<pjrt == same>([] { return RuleCase<TwoInSequence, decltype(__VA_ARGS__)>{__VA_ARGS__}; }, check);
#include "test/devices/list.hpp"
#undef RULE
#undef PRECISION
}

TEST_CASE("PJRT devices compute in precisions as their types say", "[devices][pjrt]") {
#define RULE(...)
  auto const check = [](auto const& one) { compare_rounded(device(), one); };
#define PRECISION(in_sequential, in_graph, pjrt, rule, ...) \
  when<pjrt == same>([] { return PrecisionCase<__VA_ARGS__, TwoInSequence, decltype(rule)>{{rule}}; }, check);
#include "test/devices/list.hpp"
}

}  // namespace devices_pjrt_losses
