// SPDX-License-Identifier: Apache-2.0
//
// The gradients of operations against differences, what the interpreter of the tests computes, and the text.
#include "test/nn/stablehlo/operations.hpp"
#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/nn/lowering/gradient.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/lowering/text.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace hlo_program {

using namespace chorale::nn::stablehlo;
using chorale::Products;
using chorale::test::Interpreter;
using chorale::test::Numbers;

TEST_CASE("the gradient of each operation is the one of differences", "[nn][stablehlo]") {
  auto seen = std::set<Kind>{};
  for (auto const& a : hlo_operations::operations()) {
    INFO(a.name);
    auto program = Program{};
    auto x       = std::vector<Value>{};
    auto numbers = std::vector<Numbers>{};
    for (auto const& dims : a.dims) {
      x.push_back(program.parameter(Element::f32, dims));
      numbers.push_back(hlo_operations::random(static_cast<std::size_t>(count(dims)), x.size(), a.low, a.high));
    }
    auto const y = a.write(x);
    for (auto const& o : program.operations()) seen.insert(o.kind);
    auto const weights = program.parameter(Element::f32, y.dims());
    numbers.push_back(hlo_operations::random(static_cast<std::size_t>(count(y.dims())), 99));
    auto const loss = sum(y * weights);
    auto const by   = gradients(loss, x);
    auto const made = Interpreter{program, {numbers}, by};
    for (std::size_t v = 0; v < x.size(); ++v)
      for (std::size_t i = 0; i < numbers[v].size(); ++i) {
        auto const at = [&](double h) {
          auto moved = numbers;
          moved[v][i] += h;
          return Interpreter{program, {moved}, {loss}}(loss)[0];
        };
        constexpr double h = 1e-5;  // error h^2 of differences in double
        REQUIRE(made(by[v])[i] == Approx((at(h) - at(-h)) / (2 * h)).epsilon(1e-6).margin(1e-7));
      }
  }
  for (auto k = Kind::convert; k < Kind::all_reduce; k = static_cast<Kind>(static_cast<int>(k) + 1)) {
    auto const without = std::set{Kind::stop,        Kind::remainder, Kind::and_,
                                  Kind::or_,         Kind::xor_,      Kind::shift_left,
                                  Kind::shift_right, Kind::not_,      Kind::select_and_scatter};
    INFO("operation " << static_cast<int>(k));
    CHECK((seen.contains(k) || without.contains(k)));
  }
}

TEST_CASE("what a program sums over replicas passes the sum of their gradients on", "[nn][stablehlo]") {
  auto program    = Program{2};
  auto const x    = program.parameter(Element::f32, {3});
  auto const mean = all_reduce(x * x) / 6.0;
  auto const loss = sum(mean * x * (1.0 + convert(along_last(program.replica(), x), Element::f32)));
  auto const by   = gradients(loss, {x})[0];
  auto numbers    = std::vector<std::vector<Numbers>>{{hlo_operations::random(3, 1)}, {hlo_operations::random(3, 2)}};
  auto const made = Interpreter{program, numbers, {by}};
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t i = 0; i < 3; ++i) {
      auto const at = [&](double h) {  // the sum of both replicas' losses
        auto moved = numbers;
        moved[r][0][i] += h;
        auto const run = Interpreter{program, moved, {loss}};
        return run(loss, 0)[0] + run(loss, 1)[0];
      };
      CHECK(made(by, r)[i] == Approx((at(1e-5) - at(-1e-5)) / 2e-5).epsilon(1e-6));
    }
}

TEST_CASE("values have gradients only where they are asked for and exist", "[nn][stablehlo]") {
  auto program  = Program{};
  auto const x  = program.parameter(Element::f32, {2});
  auto const z  = program.parameter(Element::f32, {2});
  auto const by = gradients(sum(x * stop_gradient(x)), {x, z});
  auto const at = Interpreter{program, {{{3, 4}, {5, 6}}}, by};
  CHECK(at(by[0]) == Numbers{3, 4});  // not 6 and 8
  CHECK(at(by[1]) == Numbers{0, 0});
  auto const y = sum(remainder(x, z));
  CHECK_THROWS_WITH(gradients(y, {x}), Catch::Contains("asks for the gradient of an operation without a gradient"));
  CHECK_THROWS_WITH(x + reshape(z, {2, 1}), Catch::Contains("two operands have different shapes"));
}

TEST_CASE("the tests' interpreter computes integers, replicas and rounded halves", "[nn][stablehlo]") {
  auto p           = Program{3};
  auto const x     = p.parameter(Element::u32, {2});
  auto const f     = p.parameter(Element::f32, {3});
  auto const mod   = x * p.constant(2654435761.0, {2}, Element::u32);  // modulo 2^32
  auto const mix   = (shifted_left(x, 31) ^ shifted_right(x, 1)) | (complement(x) & p.constant(2, {2}, Element::u32));
  auto const whole = convert(f, Element::i32), half = convert(f, Element::bf16);
  auto const all = all_gather(f), part = reduce_scatter(f);
  auto const rows = gather(reshape(f, {3, 1}), convert(x, Element::i32));
  auto const run  = [](double from) { return std::vector<Numbers>{{3, 4294967295.0}, {from, from + 0.5, -1.75}}; };
  auto const at   = Interpreter{p, {run(1.00390625), run(2), run(3)}, {mod, mix, whole, half, all, part, rows}};
  CHECK(at(mod) == Numbers{3668339987.0, 1640531535.0});
  CHECK(at(mix) == Numbers{2147483649.0, 4294967295.0});
  CHECK(at(whole) == Numbers{1, 1, -1});
  CHECK(at(half) == Numbers{1, 1.5, -1.75});  // 1 + 2^-8 is between two, the even one is 1
  CHECK(at(all, 1) == Numbers{1.00390625, 1.50390625, -1.75, 2, 2.5, -1.75, 3, 3.5, -1.75});
  CHECK(at(part, 2) == Numbers{-5.25});
  CHECK(at(rows) == Numbers{-1.75, 1.00390625});  // ids 3 and -1 are outside
}

TEST_CASE("a program is written as a module with one line for each operation", "[nn][stablehlo]") {
  auto p       = Program{2};
  auto const x = p.parameter(Element::f32, {4, 3});
  auto const w = p.parameter(Element::f32, {3, 2});
  x * 3.0;  // nothing depends on it
  auto const y      = maximum(matmul(x, w), 0);
  auto const sum_of = all_reduce(sum(y, {0}));
  CHECK(text_of(p, {{w - broadcast(sum_of, {3, 2}, {1}), 1}, {sum_of}}) == R"(module @step {
  func.func public @main(%arg0: tensor<4x3xf32>, %arg1: tensor<3x2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<3x2xf32>, tensor<2xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    %1 = stablehlo.constant dense<0.000000000e+00> : tensor<4x2xf32>
    %2 = stablehlo.maximum %0, %1 : tensor<4x2xf32>
    %n3 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%2 init: %n3) applies stablehlo.add across dimensions = [0] : (tensor<4x2xf32>, tensor<f32>) -> tensor<2xf32>
    %5 = "stablehlo.all_reduce"(%4) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<2xf32>) -> tensor<2xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<2xf32>) -> tensor<3x2xf32>
    %7 = stablehlo.subtract %arg1, %6 : tensor<3x2xf32>
    return %7, %5 : tensor<3x2xf32>, tensor<2xf32>
  }
}
)");
}

TEST_CASE("products are as exact as a program says, also those of gradients", "[nn][stablehlo]") {
  auto const written = [](Products products) {
    auto p       = Program{1, products};
    auto const x = p.parameter(Element::f32, {1, 2, 2, 1}), k = p.parameter(Element::f32, {2, 2, 1, 1});
    auto const y =
        matmul(reshape(convolution(x, k, {}), {1, 1}), reshape(slice(k, {0, 0, 0, 0}, {1, 1, 1, 1}), {1, 1}));
    auto const loss = sum(y);
    auto const by   = gradients(loss, {x, k});
    auto const near = 1 + 0x1p-9;  // between two bf16, and a half
    auto const made = Interpreter{p, {{{near, 2, 3, 4}, {near, 1, 1, 1}}}, {y, by[0], by[1]}};
    return std::tuple{text_of(p, {{by[0]}, {by[1]}}), made(y)[0], made(by[0])[0], y.element()};
  };
  auto const [exact, y, by_x, type] = written(Products::f32);
  auto const near                   = 1 + 0x1p-9;
  CHECK(exact.find("DEFAULT") == exact.npos);
  CHECK(exact.find("[HIGHEST, HIGHEST]") != exact.npos);
  CHECK(exact.find("[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]") != exact.npos);
  CHECK(y == (near * near + 9) * near);
  CHECK(std::get<0>(written(Products::tf32)).find("[HIGH, HIGH]") != std::string::npos);
  auto const [text, rounded, slope, rounded_type] = written(Products::bf16);
  CHECK(text.find("HIGH") == text.npos);
  CHECK(text.find("(tensor<1x1xbf16>, tensor<1x1xbf16>) -> tensor<1x1xf32>") != text.npos);
  CHECK(text.find("xbf16>) -> tensor<1x2x2x1xf32>") != text.npos);  // a convolution of the gradient
  CHECK(rounded == 10);
  CHECK(slope == 1);
  CHECK(by_x == near * near);
  CHECK(rounded_type == type);
  CHECK(std::get<1>(written(Products::fp16)) == Approx(y).epsilon(1e-3));
  CHECK(std::get<1>(written(Products::fp16)) != y);
}

}  // namespace hlo_program
