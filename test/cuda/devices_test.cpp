// SPDX-License-Identifier: Apache-2.0
//
// What test/devices/list.hpp says that a GPU computes, beside Cpu.
#include "test/cuda/device.hpp"
#include "test/devices/rows.hpp"

#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <tuple>
#include <type_traits>

namespace devices_cuda {

using namespace chorale;
using namespace chorale::test::devices;
using Catch::Contains;
using test::gpu_or_skip;

#define PART(...)
#define OPTION(...)
#define SENTENCE(...)
#define LOSS(...)
#define METRIC(...)
#define RULE(...)
#define PRECISION(...)
#define LAYER(in_sequential, in_graph, pjrt, inputs, ...) +row_if_same<in_graph, inputs, __VA_ARGS__>()
constexpr auto of_graphs = ListOfRows<>{}
#include "test/devices/list.hpp"
;
#undef LAYER
#define LAYER(in_sequential, in_graph, pjrt, inputs, ...) +row_if_same<in_sequential, inputs, __VA_ARGS__>()
constexpr auto of_sequentials = ListOfRows<>{}
#include "test/devices/list.hpp"
;
#undef LAYER
#undef LOSS
#undef METRIC
#undef RULE
#undef PRECISION
#define LAYER(...)

TEST_CASE("a GPU computes layers of a Graph as Cpu does", "[devices][cuda]") {
  auto const gpu = gpu_or_skip("a GPU computes layers of a Graph as Cpu does");
  if (!gpu) return;
  auto const scope      = Cuda::Scope{*gpu};
  auto const compare_of = [&]<class... Inputs>(std::tuple<Inputs...> const*) {
    (decltype(of_graphs.with<Inputs>())::template each_part<LayerCase, 8>([&](auto const& one) { compare(*gpu, one); }),
     ...);
  };
  compare_of(static_cast<std::tuple<vector, two_vectors, image, sequence, ids, bytes>*>(nullptr));
}

TEST_CASE("a GPU computes layers of a Sequential as Cpu does", "[devices][cuda]") {
  auto const gpu = gpu_or_skip("a GPU computes layers of a Sequential as Cpu does");
  if (!gpu) return;
  auto const scope       = Cuda::Scope{*gpu};
  auto const same_as_cpu = [&](auto const& one) { compare(*gpu, one); };
  decltype(of_sequentials.with<vector>())::template each_part<SequentialLayerCase, 4>(same_as_cpu);
  decltype(of_sequentials.with<image>())::template each_part<SequentialLayerCase, 1>(same_as_cpu);
}

TEST_CASE("a GPU computes losses as Cpu does", "[devices][cuda]") {
  auto const gpu = gpu_or_skip("a GPU computes losses as Cpu does");
  if (!gpu) return;
  auto const scope   = Cuda::Scope{*gpu};
  auto const refuses = [&](auto const& one) {
    CHECK_THROWS_WITH(ask(*gpu, one), Contains("label_smoothing is computed on CPUs only, and is 0.1 on another "
                                               "device. Give smoothed targets to loss::CrossEntropy"));
  };
  auto const same_as_cpu = [&](auto const& one) { compare(*gpu, one); };
#define CHECK_LOSS(in_sequential, in_graph, answer, check, ending, ...)                                                \
  when<in_sequential == answer>([] { return SequentialLossCase<ending, decltype(__VA_ARGS__)>{__VA_ARGS__}; }, check); \
  when<in_graph == answer>([] { return LossCase{Ended<ending, decltype(__VA_ARGS__)>{__VA_ARGS__}}; }, check);
#define LOSS(in_sequential, in_graph, pjrt, ...)                      \
  CHECK_LOSS(in_sequential, in_graph, same, same_as_cpu, __VA_ARGS__) \
  CHECK_LOSS(in_sequential, in_graph, throws(23), refuses, __VA_ARGS__)
#define METRIC(...)
#define RULE(...)
#define PRECISION(...)
#include "test/devices/list.hpp"
#undef LOSS
#undef METRIC
#define LOSS(...)
}

template <class Of> void compare_metrics(Cuda const& gpu) {
#define METRIC(in_sequential, in_graph, pjrt, of, ...) \
  , tuple_if_same<std::is_same_v<Of, of> ? in_graph : none>([] { return __VA_ARGS__; })
  std::apply([&](auto const&... m) { compare(gpu, MetricCase{Of{}, m...}); }, std::tuple_cat(std::tuple{}
#include "test/devices/list.hpp"
                                                                                             ));
#undef METRIC
#define METRIC(in_sequential, in_graph, pjrt, of, ...) \
  , tuple_if_same<std::is_same_v<Of, of> ? in_sequential : none>([] { return __VA_ARGS__; })
  std::apply([&](auto const&... m) { compare(gpu, SequentialMetricCase{Of{}, m...}); }, std::tuple_cat(std::tuple{}
#include "test/devices/list.hpp"
                                                                                                       ));
#undef METRIC
#undef RULE
#define METRIC(...)
}
TEST_CASE("a GPU's outputs give the metrics of Cpu", "[devices][cuda]") {
  auto const gpu = gpu_or_skip("a GPU's outputs give the metrics of Cpu");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  compare_metrics<labels>(*gpu);
  compare_metrics<yes_or_no>(*gpu);
  compare_metrics<numbers>(*gpu);
}

TEST_CASE("a GPU updates by rules as Cpu does", "[devices][cuda]") {
  auto const gpu = gpu_or_skip("a GPU updates by rules as Cpu does");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto const check = [&](auto const& one) {
    compare(*gpu, one);
    compare_ahead(*gpu, one);
  };
#define RULE(in_sequential, in_graph, pjrt, ...)                                                                  \
  when<in_sequential == same>([] { return RuleCase<TwoInSequence, decltype(__VA_ARGS__)>{__VA_ARGS__}; }, check); \
  when<in_graph == same>([] { return RuleCase<TwoLayers, decltype(__VA_ARGS__)>{__VA_ARGS__}; }, check);
#include "test/devices/list.hpp"
#undef RULE
#undef PRECISION
#define RULE(...)
}

TEST_CASE("a GPU computes in precisions as their types say", "[devices][cuda]") {
  auto const gpu = gpu_or_skip("a GPU computes in precisions as their types say");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto const check = [&](auto const& one) { compare_rounded(*gpu, one); };
#define PRECISION(in_sequential, in_graph, pjrt, of, ...)                                                           \
  when<in_sequential == same>([] { return PrecisionCase<__VA_ARGS__, TwoInSequence, decltype(of)>{{of}}; }, check); \
  when<in_graph == same>([] { return PrecisionCase<__VA_ARGS__, TwoLayers, decltype(of)>{{of}}; }, check);
#include "test/devices/list.hpp"
#undef PRECISION
}

#undef LAYER
#undef LOSS
#undef METRIC
#undef RULE
#undef PART
#undef OPTION
#undef SENTENCE

}  // namespace devices_cuda
