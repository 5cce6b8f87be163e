// metric_of_labels_on_numbers.cpp   expect: chorale: a metric needs a name, and float row(Span<float const> y, Span<target const> wanted) const, with the targets of the loss
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct First {
  static constexpr std::string_view name = "first";
  float row(Span<float const> y, Span<int const> label) const { return y[static_cast<std::size_t>(label[0])]; }
};

float sum(float const* y, float const* wanted) { return metric::sum_of(First{}, 4, 2, y, wanted); }
