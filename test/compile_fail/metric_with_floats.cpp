// metric_with_floats.cpp   expect: chorale: the state of a metric is a std::array<double, n> of numbers that replicas add up
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
struct Sure {
  static constexpr std::string_view name = "sure";
  using state                            = std::array<float, 2>;
  void update(state& sums, Span<float const> y, Span<int const> label) const {
    sums[0] += y[static_cast<std::size_t>(label[0])] > 2 ? 1 : 0;
    sums[1] += 1;
  }
  double result(state const& sums) const { return sums[0] / sums[1]; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Sure{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }
