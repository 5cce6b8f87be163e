// metric_of_labels_on_labels.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct First {
  static constexpr std::string_view name = "first";
  float row(Span<float const> y, Span<int const> label) const { return y[static_cast<std::size_t>(label[0])]; }
};

float sum(float const* y, int const* wanted) { return metric::sum_of(First{}, 4, 2, y, wanted); }
