// SPDX-License-Identifier: Apache-2.0
//
// What printers_test.py lets gdb print: it stops in look_at().
#include <chorale/data/field.hpp>
#include <chorale/data/typed_rows.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/shape.hpp>
#include <chorale/tensor/variable.hpp>

#include <array>

using namespace chorale;

struct Pixels : Field<float, 2> {};

namespace {

template <class... T> [[gnu::noinline]] void look_at(T const&...) { asm volatile("" ::: "memory"); }

constexpr auto layout = [] {
  auto made         = Plan<2, 1>{};
  made.variables[0] = {.name = Name{"dense/kernel"}, .spec = {.name = "kernel", .dims = {3, 4}, .rank = 2}, .size = 12};
  made.variables[1] = {.name = Name{"dense/bias"}, .spec = {.name = "bias", .dims = {4}, .rank = 1}, .size = 4};
  made.parameters   = 16;
  made.buckets      = 1;
  return made;
}();

}  // namespace

int main() {
  auto numbers         = std::array<float, 64>{34.5F, 16.0F, 0.25F};
  auto const dims      = std::array{3, 4};
  auto const shape     = Shape<3, 4>{};
  auto const row       = Shape<7>{};
  auto const of        = nn::Of<float, 40, 64>{};
  auto const ragged    = nn::Of<int, -1>{};
  auto const tensor    = nn::Tensor<int, nn::Of<float, 3>>{.trace = nullptr, .value = 2};
  auto const span      = Span<float>{numbers}.first(3);
  auto const view      = PlanView{layout};
  auto const variable  = Variable{.name = "dense/kernel", .shape = dims, .value = span};
  auto const variables = Variables{.values = numbers, .plan = layout.variables};
  auto const gradients = Gradients{.values = numbers, .plan = layout.variables, .ends = {}};
  auto const pixels    = std::array<float, 6>{};
  auto const rows      = Rows<Pixels>{pixels};
  look_at(shape, row, of, ragged, tensor, span, view, variable, variables, gradients, rows, layout);
}
