// metric_state_without_result.cpp   expect: chorale: a metric with a state needs a name, void update(state&, Span<float const> y, Span<target const> wanted) const
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
struct Sure {
  static constexpr std::string_view name = "sure";
  using state                            = std::array<double, 2>;
  void update(state& sums, Span<float const> y, Span<int const> label) const {
    sums[0] += y[static_cast<std::size_t>(label[0])] > 2 ? 1 : 0;
    sums[1] += 1;
  }
  void result(state const&) const {}
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Sure{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }
