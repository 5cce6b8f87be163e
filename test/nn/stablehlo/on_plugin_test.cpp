// SPDX-License-Identifier: Apache-2.0
//
// Operations, losses and update rules on the plug-in of CHORALE_PJRT_PLUGIN, one for CPUs, against the interpreter of
// the tests. Skipped by name where no plug-in is named.
#include "test/nn/stablehlo/on_plugin.hpp"
#include "test/nn/stablehlo/operations.hpp"
#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/nn/lowering/gradient.hpp>
#include <chorale/nn/lowering/losses.hpp>
#include <chorale/nn/lowering/optimizers.hpp>
#include <chorale/nn/lowering/program.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace hlo_on_plugin {

using namespace chorale::nn::stablehlo;
using chorale::test::Interpreter;
using chorale::test::Numbers;
namespace optim = chorale::optim;

namespace {

/// A program whose results are compared, each with a name. Its arguments and results have 32 bits.
class Compared {
 public:
  explicit Compared(std::size_t replicas = 1) : program{static_cast<int>(replicas)}, arguments_(replicas) {}

  Program program;

  /// An argument with numbers that replicas do not share.
  Value argument(Element element, Dims dims, double low = -1, double high = 1) {
    for (auto& of_replica : arguments_) {
      of_replica.push_back(hlo_operations::random(static_cast<std::size_t>(count(dims)), stream_++, low, high));
      if (!is_float(element))
        for (auto& x : of_replica.back()) x = chorale::test::hlo::as(element, std::floor(x));
    }
    return program.parameter(element, std::move(dims));
  }
  void compare(std::string name, Value value, double epsilon = 1e-5) {
    auto const e = value.element();
    wanted_.push_back(e == Element::i32 || e == Element::u32 ? value : convert(value, Element::f32));
    names_.push_back(std::move(name));
    epsilons_.push_back(epsilon);
  }

  /// Runs it on both, if there is a plug-in.
  void run(char const* test) {
    auto const made = chorale::test::on_plugin(program, arguments_, wanted_);
    if (!made) return static_cast<void>(std::printf("SKIPPED: %s: CHORALE_PJRT_PLUGIN names no plug-in\n", test));
    auto const expected = Interpreter{program, arguments_, wanted_};
    for (std::size_t r = 0; r < arguments_.size(); ++r)
      for (std::size_t i = 0; i < wanted_.size(); ++i) {
        INFO(names_[i] << " on replica " << r);
        auto const& numbers = expected(wanted_[i], r);
        auto const& got     = (*made)[r][i];
        for (std::size_t k = 0; k < numbers.size(); ++k)
          if (is_float(wanted_[i].element())) CHECK(got[k] == Approx(numbers[k]).epsilon(epsilons_[i]).margin(2e-6));
          else CHECK(got[k] == numbers[k]);
      }
  }

 private:
  std::vector<std::vector<Numbers>> arguments_;  // [replica][i]
  std::vector<Value> wanted_;
  std::vector<std::string> names_;
  std::vector<double> epsilons_;
  std::uint64_t stream_ = 0;
};

template <class L> void compare_loss(Compared& all, std::string const& name, L const& loss, Value y, Value targets) {
  auto const rows = LossLowering<L>::rows(loss, y, targets);
  all.compare(name, rows);
  all.compare("gradient of " + name, gradients(sum(rows), {y})[0]);
}

template <class O> void compare_update(Compared& all, std::string const& name, O const& rule) {
  auto const dims = Dims{3, 5};
  auto const w = all.argument(Element::f32, dims), g = all.argument(Element::f32, dims);
  auto slots = std::vector<Value>{};
  for (int s = 0; s < O::slots; ++s) slots.push_back(all.argument(Element::f32, dims, 0.5, 1));
  auto const fed  = all.argument(Element::f32, {static_cast<std::int64_t>(UpdateLowering<O>::scalars)}, 0.5, 1);
  auto const next = UpdateLowering<O>::write(rule, w, g, slots, fed);
  all.compare(name, next);
  for (auto const slot : slots) all.compare("slot of " + name, slot);
}

}  // namespace

TEST_CASE("a plug-in computes operations and their gradients as the interpreter does", "[nn][stablehlo][plugin]") {
  auto all = Compared{};
  for (auto const& a : hlo_operations::operations()) {
    auto x = std::vector<Value>{};
    for (auto const& dims : a.dims) x.push_back(all.argument(Element::f32, dims, a.low, a.high));
    auto const y = a.write(x);
    all.compare(a.name, y);
    auto const by = gradients(sum(y * all.argument(Element::f32, y.dims())), x);
    for (auto const g : by) all.compare("gradient of " + a.name, g);
  }
  auto const a = all.argument(Element::u32, {9}, 0, 4e9), b = all.argument(Element::u32, {9}, 1, 4e4);
  auto const i = all.argument(Element::i32, {9}, -5, 5), j = all.argument(Element::i32, {9}, 1, 5);
  auto const f = all.argument(Element::f32, {9}, -3, 3);
  all.compare("product of words", a * b);
  all.compare("difference of words", b - a);
  all.compare("quotient and remainder", (a / b) ^ remainder(a, b));
  all.compare("bits", (shifted_left(a, 3) | shifted_right(a, 30)) & complement(b));
  all.compare("remainder of integers", remainder(i, j));
  all.compare("quotient of integers", i / j);
  all.compare("integers as floats", convert(i, Element::f32));
  all.compare("words as floats", convert(a, Element::f32));
  all.compare("floats as integers", convert(f, Element::i32));
  all.compare("truths", (compare(i, "LT", j) | complement(compare(f, "GE", 0.5))) & compare(a, "GT", b));
  auto const half = convert(f, Element::bf16);
  all.compare("halves", half * half, 1.0 / 128);  // XLA keeps more digits between operations
  all.compare("ids outside", gather(reshape(f, {9, 1}), i * 3.0));
  all.run("a plug-in computes operations and their gradients as the interpreter does");
}

TEST_CASE("replicas of a plug-in exchange what those of the interpreter do", "[nn][stablehlo][plugin]") {
  auto all     = Compared{3};
  auto const x = all.argument(Element::f32, {6, 2}), n = convert(all.program.replica(), Element::f32);
  all.compare("number", all.program.replica());
  all.compare("sum", all_reduce(x));
  all.compare("all parts", all_gather(x * broadcast(n, x.dims(), {})));
  all.compare("own part of the sum", reduce_scatter(x));
  all.compare("gradient through a sum", gradients(sum(all_reduce(x * x) * x), {x})[0]);
  all.run("replicas of a plug-in exchange what those of the interpreter do");
}

TEST_CASE("a plug-in computes losses and update rules as the interpreter does", "[nn][stablehlo][plugin]") {
  namespace loss = chorale::loss;
  auto all       = Compared{};
  auto const y = all.argument(Element::f32, {7, 4}, -3, 3), p = all.argument(Element::f32, {7, 4}, 0, 1);
  auto const targets = all.argument(Element::f32, {7, 4}, 0, 1), labels = all.argument(Element::i32, {7, 1}, 0, 4);
  compare_loss(all, "SparseCrossEntropy", loss::SparseCrossEntropy{}, y, labels);
  compare_loss(all, "smoothed SparseCrossEntropy", loss::SparseCrossEntropy{0.1F}, y, labels);
  compare_loss(all, "CrossEntropy", loss::CrossEntropy{}, y, targets);
  compare_loss(all, "CrossEntropyOfProbabilities", loss::CrossEntropyOfProbabilities{}, p, targets);
  compare_loss(all, "MeanAbsoluteError", loss::MeanAbsoluteError{}, y, targets);
  compare_loss(all, "Huber", loss::Huber{}, y, targets);
  compare_loss(all, "LogCosh", loss::LogCosh{}, y, targets);
  compare_loss(all, "Poisson", loss::Poisson{}, p, targets);
  compare_loss(all, "KLDivergence", loss::KLDivergence{}, p, targets);
  compare_loss(all, "CosineSimilarity", loss::CosineSimilarity{}, y, targets);
  compare_loss(all, "BinaryCrossEntropy", loss::BinaryCrossEntropy{}, y, targets);
  compare_loss(all, "BinaryFocalCrossEntropy", loss::BinaryFocalCrossEntropy{true}, y, targets);
  compare_loss(all, "SquaredHinge", loss::SquaredHinge{}, y, targets);
  compare_loss(all, "Weighted", loss::Weighted{loss::MeanSquaredError{}, {1, 2, 3, 4}}, y, targets);
  compare_loss(all, "Weighted of labels", loss::Weighted{loss::SparseCrossEntropy{}, {1, 2, 3, 4}}, y, labels);
  compare_update(all, "SGD", optim::SGD{.momentum = 0.9F, .weight_decay = 0.1F});
  compare_update(all, "AdamW", optim::AdamW{});
  compare_update(all, "RMSprop", optim::RMSprop{.momentum = 0.9F, .centered = true});
  compare_update(all, "Adagrad", optim::Adagrad{});
  compare_update(all, "Nadam", optim::Nadam{});
  compare_update(all, "Lion", optim::Lion{.weight_decay = 0.1F});
  compare_update(all, "Lamb", optim::Lamb{.weight_decay = 0.1F});
  for (auto const g : clipped({y, p}, 0.5)) all.compare("clipped", g);
  all.compare("moved", moved({0.9F, 0.1F}, y, p, all.program.constant(7)));
  all.run("a plug-in computes losses and update rules as the interpreter does");
}

}  // namespace hlo_on_plugin
