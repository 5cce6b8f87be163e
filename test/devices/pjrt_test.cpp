// SPDX-License-Identifier: Apache-2.0
//
// What test/devices/list.hpp says that PJRT devices compute: on the interpreter of the tests, beside Cpu.
#include "test/devices/rows.hpp"
#include "test/pjrt/interpreting_plugin.hpp"

#include <chorale/pjrt/tpu.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <tuple>

namespace devices_pjrt {

using namespace chorale;
using namespace chorale::test::devices;

auto const& device() {
  static auto const one = Pjrt::open(test::fake::interpreting_plugin(), {.devices = 1});
  return one;
}

#define PART(...)
#define OPTION(...)
#define SENTENCE(...)

// All layers, by what goes in.
#define LAYER(in_sequential, in_graph, pjrt, inputs, ...) +row_if_same<pjrt, inputs, __VA_ARGS__>()
#define LOSS(...)
#define METRIC(...)
#define RULE(...)
#define PRECISION(...)
constexpr auto layers = ListOfRows<>{}
#include "test/devices/list.hpp"
;
#undef LAYER
#undef LOSS
#undef METRIC
#undef RULE
#undef PRECISION

template <class Inputs> void compare_layers() {
  decltype(layers.with<Inputs>())::template each_part<LayerCase, 8>([](auto const& one) { compare(device(), one); });
}

TEST_CASE("PJRT devices compute layers of vectors as Cpu does", "[devices][pjrt]") {
  compare_layers<vector>();
  compare_layers<two_vectors>();
}
TEST_CASE("PJRT devices compute layers of images as Cpu does", "[devices][pjrt]") { compare_layers<image>(); }
TEST_CASE("random numbers do not depend on the order in which Cpu has pixels", "[devices][pjrt]") {
  compare(device(), SequentialLayerCase<image, nn::Dropout<40>>{});
  compare(device(), SequentialLayerCase<image, nn::GaussianNoise<10>>{});
}
TEST_CASE("PJRT devices compute layers of sequences and ids as Cpu does", "[devices][pjrt]") {
  compare_layers<sequence>();
  compare_layers<two_sequences>();
  compare_layers<ids>();
  compare_layers<bytes>();
}

}  // namespace devices_pjrt
