// SPDX-License-Identifier: Apache-2.0
//
// Groups of variables that are updated in another way, frozen variables, and moving averages of variables.
#include "test/support/tiny.hpp"

#include <chorale/reduce/reproducible.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace groups_test {

using namespace chorale;
using Catch::Matchers::Contains;
using optim::Averaged;
using optim::Grouped;

namespace {

struct Net : nn::Sequential<nn::Input<6>, nn::Dense<5>, nn::BatchNorm<>, nn::Tanh, nn::Dense<3>> {};
struct Plain : nn::Sequential<nn::Input<6>, nn::Dense<5>, nn::Tanh, nn::Dense<3>> {};

template <class N = Net, class O> auto copy_with(O rule) {
  return nn::compile<N>(loss::SparseCrossEntropy{}, rule).instantiate(Cpu::logical(1)[0], 3);
}

/// Some steps of a copy on one batch.
template <class C> void train(C& copy, int steps = 6) {
  auto const batch = tiny::batch<int>(12, 6, 1);
  for (int step = 0; step < steps; ++step) {
    copy.value_and_gradient(batch.view(), 0, LooksAtEnd{}, Together{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  }
}

std::vector<float> numbers(Span<float const> of) { return {of.begin(), of.end()}; }

/// The values of variable i, and those of its optimizer slots.
template <class C> std::vector<float> slots_of(C const& copy, std::size_t i) {
  auto const& v   = C::plan.variables[i];
  auto const all  = copy.optimizer.slots();
  auto const body = C::plan.body().size();
  auto made       = std::vector<float>{};
  for (std::size_t begin = v.offset - plan::header; begin < all.size(); begin += body)
    made.insert(made.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                all.begin() + static_cast<std::ptrdiff_t>(begin + v.size));
  return made;
}

template <class O> std::string refusal(O&& make) {
  try {
    make();
  } catch (BadArgument const& error) { return error.what(); }
  return "";
}

/// The variables of a model after two epochs under n replicas, whose batches are of 17, 16 and 15 rows.
template <class R, class O>
std::pair<std::vector<float>, std::vector<std::uint64_t>> trained(int replicas, R reduce, O rule) {
  auto trainer = Trainer{nn::compile<Plain>(loss::SparseCrossEntropy{}, rule), MirroredStrategy{Cpu::logical(replicas)},
                         reduce, LocalTransport{}, 7};
  auto const batches = tiny::Batches<int>{tiny::batch<int>(48, 6, 1), {17, 16, 15}};
  trainer.fit(batches, {.epochs = 2, .show = Show::nothing});
  auto all = numbers(trainer.variables().body());
  with_averages(trainer, [&] {
    auto const averages = numbers(trainer.variables().body());
    all.insert(all.end(), averages.begin(), averages.end());
  });
  return {all, trainer.hashes()};
}

auto some_groups() {
  return Grouped{Averaged{optim::AdamW{.learning_rate = 0.02F, .weight_decay = 0.1F, .global_clipnorm = 0.3F}, 0.9F},
                 {optim::frozen("dense/kernel"), {.names = "*/bias", .learning_rate = 2, .weight_decay = 0}}};
}

}  // namespace

TEST_CASE("a group that changes nothing changes no bit", "[model][groups]") {
  auto const rule = optim::AdamW{.learning_rate = 0.02F, .weight_decay = 0.1F};
  auto plain      = copy_with(rule);
  auto one        = copy_with(Grouped{rule, {{.names = "*"}}});
  auto many       = copy_with(Grouped{rule, {{.names = "*/bias"}, {.names = "dense_1*"}}});
  train(plain), train(one), train(many);
  CHECK(one.hash() == plain.hash());
  CHECK(many.hash() == plain.hash());
}

TEST_CASE("a frozen variable keeps its bits and has no state, and others are updated as before", "[model][groups]") {
  auto const rule   = optim::AdamW{.learning_rate = 0.02F, .weight_decay = 0.1F};
  auto plain        = copy_with(Grouped{rule, {optim::frozen("*/moving_*")}});  // whose averages normalize in both
  auto frozen       = copy_with(Grouped{rule, {optim::frozen("dense/*"), optim::frozen("batch_normalization/*")}});
  auto const before = numbers(frozen.net.variables().values);
  train(plain, 1), train(frozen, 1);  // later the gradients differ
  for (std::size_t i = 0; i < Net::plan.variables.size(); ++i) {
    auto const& v = Net::plan.variables[i];
    auto const is = numbers(frozen.net.variables()[i].value);
    INFO(std::string_view{v.name});
    if (std::string_view{v.name}.starts_with("dense_1")) {
      CHECK(is == numbers(plain.net.variables()[i].value));
      CHECK(slots_of(frozen, i) == slots_of(plain, i));
    } else {
      CHECK(is == numbers(Span<float const>{before}.subspan(v.offset, v.size)));
      CHECK(std::ranges::all_of(slots_of(frozen, i), [](float x) { return x == 0; }));
    }
  }
  train(frozen, 20);
  auto const kernel = Range{Net::plan.variables[0].offset, Net::plan.variables[0].end()};
  CHECK(std::equal(before.begin() + static_cast<std::ptrdiff_t>(kernel.begin),
                   before.begin() + static_cast<std::ptrdiff_t>(kernel.end), frozen.net.variables()[0].value.begin()));
}

TEST_CASE("moving averages of a layer move unless they are frozen", "[model][groups]") {
  auto const moving = [](auto groups) {
    auto copy         = copy_with(Grouped{optim::Adam{}, groups});
    auto const at     = copy.net.variables().size() - 3;  // before the kernel and the bias of dense_1
    auto const before = numbers(copy.net.variables()[at].value);
    REQUIRE(std::string_view{Net::plan.variables[at].name} == "batch_normalization/moving_variance");
    train(copy);
    return before != numbers(copy.net.variables()[at].value);
  };
  CHECK(moving(std::vector<optim::ParameterGroup>{optim::frozen("dense/kernel")}));
  CHECK_FALSE(moving(std::vector<optim::ParameterGroup>{optim::frozen("*/moving_variance")}));
}

TEST_CASE("the gradient of a frozen variable does not count in the norm", "[model][groups]") {
  auto const rule   = optim::SGD{.learning_rate = 1, .global_clipnorm = 1e-3F};
  auto copy         = copy_with<Plain>(Grouped{rule, {optim::frozen("dense/*")}});
  auto const before = numbers(copy.net.variables().values);
  train(copy, 1);
  auto squares = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    auto const moved = static_cast<double>(copy.net.variables().values[i] - before[i]);
    squares += moved * moved;
  }
  CHECK(std::sqrt(squares) == Approx(1e-3).epsilon(1e-3));
}

TEST_CASE("a group has a rate and a decay of its own", "[model][groups]") {
  auto plain = copy_with<Plain>(optim::SGD{.learning_rate = 0.1F});
  auto twice = copy_with<Plain>(Grouped{optim::SGD{.learning_rate = 0.1F}, {{.names = "*/bias", .learning_rate = 2}}});
  train(plain, 1), train(twice, 1);
  for (std::size_t i = 0; i < plain.net.variables().size(); ++i) {
    auto const v = plain.net.variables()[i];
    for (std::size_t k = 0; k < v.value.size(); ++k)
      if (v.name.ends_with("bias")) CHECK(twice.net.variables()[i].value[k] == Approx(2 * v.value[k]));
      else CHECK(twice.net.variables()[i].value[k] == v.value[k]);
  }
}

TEST_CASE("groups work within LossScaled and around Averaged, and a callback's rate is theirs too", "[model][groups]") {
  auto const rule = optim::LossScaled{Grouped{Averaged{optim::Adam{}}, {{.names = "dense/*", .learning_rate = 0}}}};
  auto copy       = copy_with<Plain>(rule);
  copy.optimizer.now.rate = 0.5F;
  auto const first = numbers(copy.net.variables()[0].value), last = numbers(copy.net.variables()[2].value);
  train(copy);
  CHECK(numbers(copy.net.variables()[0].value) == first);  // a rate of 0
  CHECK(numbers(copy.net.variables()[2].value) != last);
  CHECK(copy.optimizer.rate() == 0.5F);
}

TEST_CASE("groups and averages are equal to one replica, and the same on each", "[model][groups]") {
  auto const one = trained(1, RingAllReduce{}, some_groups());
  for (auto const replicas : {2, 3}) {
    auto const many = trained(replicas, RingAllReduce{}, some_groups());
    for (auto const hash : many.second) CHECK(hash == many.second[0]);
    REQUIRE(many.first.size() == one.first.size());
    for (std::size_t i = 0; i < one.first.size(); ++i) CHECK(many.first[i] == Approx(one.first[i]).margin(2e-5));
  }
}

TEST_CASE("under Reproducible the bits of groups and averages do not depend on the replicas", "[model][groups]") {
  auto const one = trained(1, Reproducible<16>{}, some_groups());
  for (auto const replicas : {2, 3}) CHECK(trained(replicas, Reproducible<16>{}, some_groups()).first == one.first);
}

TEST_CASE("LAMB takes one variable after another, in groups and in averages too", "[model][groups]") {
  auto const rule   = optim::Lamb{.learning_rate = 0.02F, .weight_decay = 0.1F};
  auto plain        = copy_with(rule);
  auto groups       = copy_with(Grouped{rule, {{.names = "*/bias"}, {.names = "dense_1*"}}});
  auto averages     = copy_with(Averaged{rule, 0.5F});
  auto frozen       = copy_with(Grouped{rule, {optim::frozen("dense/kernel")}});
  auto const before = numbers(frozen.net.variables()[0].value);
  train(plain), train(groups), train(averages), train(frozen);
  CHECK(groups.hash() == plain.hash());
  CHECK(averages.hash() == plain.hash());
  CHECK(numbers(frozen.net.variables()[0].value) == before);
  CHECK(frozen.hash() != plain.hash());
  auto one = copy_with(rule);  // each step of a kernel has the length of it
  for (int step = 0; step < 3; ++step) {
    auto const old  = numbers(one.net.variables()[0].value);
    auto const size = [&](float of_old, float of_new) {
      auto sum = 0.0;
      for (std::size_t i = 0; i < old.size(); ++i)
        sum += std::pow(double{of_new} * double{one.net.variables()[0].value[i]} - double{of_old} * double{old[i]}, 2);
      return std::sqrt(sum);
    };
    train(one, 1);
    auto const kept = 1 - 0.02F * 0.1F;
    CHECK(size(kept, 1) == Approx(0.02 * size(kept, 0)).epsilon(1e-4));
  }
}

TEST_CASE("under Reproducible the bits of LAMB do not depend on the replicas", "[model][groups]") {
  auto const rule = Grouped{Averaged{optim::Lamb{.learning_rate = 0.02F, .global_clipnorm = 0.3F}, 0.9F},
                            {optim::frozen("dense/kernel"), {.names = "*/bias", .learning_rate = 2}}};
  auto const one  = trained(1, Reproducible<16>{}, rule);
  CHECK(trained(3, Reproducible<16>{}, rule).first == one.first);
}

TEST_CASE("an option that is out of range is refused when a copy of a model is made", "[model]") {
  CHECK_THAT(refusal([] { copy_with(optim::Adam{.epsilon = -1}); }),
             Contains("epsilon of optim::Adam is a number above 0, got -1"));
}

TEST_CASE("moving averages are exact from their second step, and are put back", "[model][averages]") {
  auto const rule = Averaged{optim::SGD{.learning_rate = 0.5F}, 0.8F};
  auto trainer    = Trainer{nn::compile<Plain>(loss::SparseCrossEntropy{}, rule, metric::Accuracy{}),
                         MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 7};
  auto const data = tiny::batch<int>(12, 6, 1);
  auto average    = std::vector<double>{};
  for (int step = 0; step < 5; ++step) {
    trainer.fit(tiny::Batches<int>{data, {12}}, {.show = Show::nothing});
    auto const w = trainer.variables().body();
    if (step == 0) average.assign(w.begin(), w.end());
    for (std::size_t i = 0; i < w.size(); ++i) average[i] = 0.8 * average[i] + 0.2 * static_cast<double>(w[i]);
  }
  auto const own    = trainer.hashes();
  auto const plain  = trainer.evaluate(tiny::Batches<int>{data, {12}});
  auto const scores = with_averages(trainer, [&] {
    auto const w = trainer.variables().body();
    for (std::size_t i = 0; i < w.size(); ++i) CHECK(static_cast<double>(w[i]) == Approx(average[i]).margin(1e-6));
    CHECK(trainer.hashes()[0] == trainer.hashes()[1]);
    CHECK(trainer.hashes() != own);
    return trainer.evaluate(tiny::Batches<int>{data, {12}});
  });
  CHECK(scores.loss() != plain.loss());
  CHECK(trainer.hashes() == own);
  CHECK(trainer.evaluate(tiny::Batches<int>{data, {12}}).loss() == plain.loss());
  CHECK_THROWS_AS(with_averages(trainer, [&]() -> void { throw std::runtime_error{"stop"}; }), std::runtime_error);
  CHECK(trainer.hashes() == own);
}

TEST_CASE("averages of copies that share their variables are put in and back once", "[model][averages]") {
  auto const rule = Averaged{optim::Adam{.learning_rate = 0.1F}, 0.5F};
  auto trainer = Trainer{nn::compile<Plain>(loss::SparseCrossEntropy{}, rule), CentralStorageStrategy{Cpu::logical(2)},
                         DirectAllReduce{}, LocalTransport{}, 7};
  auto const data = tiny::Batches<int>{tiny::batch<int>(24, 6, 1), {12, 12}};
  trainer.fit(data, {.show = Show::nothing});
  auto const own   = trainer.hashes();
  auto const apart = trainer.copies()[0].optimizer.slots();
  auto const body  = trainer.variables().body();
  auto const want  = body[0] + apart[2 * body.size()];
  with_averages(trainer, [&] { CHECK(trainer.variables().body()[0] == want); });
  CHECK(trainer.hashes() == own);
}

TEST_CASE("averages that another process keeps are refused", "[model][averages]") {
  auto copy               = copy_with<Plain>(Averaged{optim::SGD{}});
  copy.optimizer.now.step = 5;  // as under parameter servers
  CHECK_THROWS_WITH(copy.optimizer.put_averages(copy.net.variables()),
                    Contains("which is not in this process after 5 steps"));
}

TEST_CASE("groups that do not fit are one sentence", "[model][groups]") {
  CHECK_THAT(
      refusal([] { copy_with(Grouped{optim::Adam{}, {optim::frozen("conv2d*")}}); }),
      Contains("no name of the 8 variables fits the pattern \"conv2d*\" of optim::Grouped; they are dense/kernel"));
  CHECK_THAT(refusal([] { copy_with(Grouped{optim::Adam{}, {optim::frozen("*")}}); }),
             Contains("the groups of optim::Grouped freeze all 8 variables: nothing is left to train"));
  CHECK_THAT(refusal([] { Grouped{optim::Adam{}, {{.names = "*/bias", .weight_decay = 0}}}; }),
             Contains("the group */bias has a weight_decay of 0 times that of Adam, which has none"));
  CHECK_THAT(refusal([] { Grouped{optim::Adam{}, {{.names = "*/bias", .learning_rate = -1}}}; }),
             Contains("learning_rate of the group */bias is a factor of 0 or more, got -1"));
  CHECK_THAT(refusal([] { Averaged{optim::Adam{}, 1}; }),
             Contains("the momentum of optim::Averaged is from 0 to below 1, got 1"));
}

TEST_CASE("ranks compare groups and averages", "[model][groups]") {
  auto lines = std::vector<std::string>{};
  optim::describe_optimizer(
      Grouped{Averaged{optim::SGD{}}, {optim::frozen("embedding*"), {.names = "*/bias", .learning_rate = 0.5F}}},
      lines);
  CHECK(lines == std::vector<std::string>{
                     "optimizer Grouped<Averaged<SGD>>", "optimizer Grouped<Averaged<SGD>> learning_rate 0.01",
                     "optimizer Grouped<Averaged<SGD>> momentum 0", "optimizer Grouped<Averaged<SGD>> kind classic",
                     "optimizer Grouped<Averaged<SGD>> global_clipnorm 0",
                     "optimizer Grouped<Averaged<SGD>> weight_decay 0",
                     "optimizer Grouped<Averaged<SGD>> decay decoupled",
                     "optimizer Grouped<Averaged<SGD>> average_momentum 0.99",
                     "optimizer Grouped<Averaged<SGD>> group embedding*:frozen",
                     "optimizer Grouped<Averaged<SGD>> group */bias:0.5,1"});
}

}  // namespace groups_test
