// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization over replicas, against one replica with the whole batch.
#include "test/strategy/batch_norm.hpp"
#include "test/support/folder.hpp"

#include <chorale/nn/networks/residual.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/sharded.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace chorale;
using tiny::quietly;

using norm::learner, norm::LocalNet, norm::SyncNet, norm::uneven, norm::watched;

TEST_CASE("replicas that normalize together learn what one replica learns", "[strategy][batch_norm]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  norm::check_like_one(learner<SyncNet>(MirroredStrategy{Cpu::logical(replicas)}));
  norm::check_like_one(learner<SyncNet>(MirroredStrategy{Cpu::logical(replicas)}, DirectAllReduce{}));
  norm::check_like_one(learner<SyncNet>(CentralStorageStrategy{Cpu::logical(replicas)}));
}

namespace {

/// A ResNet of few numbers, whose statistics are those of all replicas.
template <int Filters, int Step = 1, class... Over>
using Basic =
    nn::Block<nn::Residual<nn::Conv2D<Filters, 3, nn::Stride<Step>, nn::Pad<1>, nn::NoBias>, nn::SyncBatchNorm<>,
                           nn::ReLU, nn::Conv2D<Filters, 3, nn::Pad<1>, nn::NoBias>, nn::SyncBatchNorm<>, Over...>,
              nn::ReLU>;
using Narrowed = nn::Shortcut<nn::Conv2D<6, 1, nn::Stride<2>, nn::NoBias>, nn::SyncBatchNorm<>>;
struct SmallResNet
    : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::SyncBatchNorm<>, nn::ReLU,
                     Basic<4>, Basic<6, 2, Narrowed>, Basic<6>, nn::AveragePool2D<4>, nn::Flatten, nn::Dense<3>> {};

}  // namespace

TEST_CASE("a ResNet over replicas that normalize together learns what one learns", "[strategy][batch_norm]") {
  norm::check_like_one<SmallResNet>(learner<SmallResNet>(MirroredStrategy{Cpu::logical(3)}));
}

TEST_CASE("replicas that normalize their shares have equal copies, and learn another thing", "[strategy][batch_norm]") {
  auto const replicas = GENERATE(2, 3, 4);
  auto trainer        = learner<LocalNet>(MirroredStrategy{Cpu::logical(replicas)});
  trainer.fit(uneven(), watched);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  CHECK(norm::difference(LocalNet::plan.variables, tiny::values_of(trainer), norm::reference<SyncNet>().first) > 1e-3);
}

TEST_CASE("alone, both layers are the same", "[strategy][batch_norm]") {
  CHECK(norm::reference<LocalNet>() == norm::reference<SyncNet>());
}

namespace {

/// Both layers, without dropout.
struct Normed : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<5, 3>, nn::SyncBatchNorm<>, nn::ReLU, nn::MaxPool2D<2>,
                               nn::Flatten, nn::Dense<16>, nn::BatchNorm<>, nn::Tanh, nn::Dense<3>> {};
struct Apart : nn::Sequential<nn::Input<8, 8, 1>, nn::Flatten, nn::Dense<16>, nn::BatchNorm<>, nn::ReLU, nn::Dense<3>> {
};
struct Pixels : Field<float, 8, 8, 1> {};
struct Kind : Field<int, 1> {};
struct Drawn : nn::Graph<Pixels> {
  nn::Conv2D<5, 3> conv;
  nn::SyncBatchNorm<> first;
  nn::Dense<16> wide;
  nn::BatchNorm<> second;
  nn::Dense<3> kind;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Kind>(kind(nn::tanh(second(wide(nn::Flatten{}(nn::relu(first(conv(x)))))))));
  }
};
auto frozen(float rate) {
  return optim::Grouped{optim::SGD{.learning_rate = rate}, {optim::frozen("batch_normalization*")}};
}
template <class N, class S, class R = RingAllReduce> auto with_frozen(S strategy, R reduce = {}, float rate = 0.05F) {
  return Trainer{nn::compile<N>(loss::SparseCrossEntropy{}, frozen(rate)), strategy, reduce, LocalTransport{}, 7};
}
/// Variables whose moving statistics are those of some steps.
template <class N> std::vector<float> moved(auto const& data) {
  auto trainer = Trainer{nn::compile<N>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F}),
                         OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 7};
  trainer.fit(data, watched);
  return tiny::values_of(trainer);
}

/// A network of frozen normalizations over any replicas: as one replica, with the averages of evaluation.
template <class N> void check_frozen(auto const& data) {
  auto const begin = moved<N>(data);
  auto one         = with_frozen<N>(OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const set   = [&](auto& trainer) {
    auto all = std::vector<float>(trainer.variables().values.size());
    std::ranges::copy(begin, all.begin() + plan::header);
    trainer.set_variables(all);
  };
  set(one);
  one.fit(data, watched);
  auto const want      = tiny::values_of(one);
  auto const variables = one.variables().plan;
  CHECK(norm::difference(variables, want, begin) > 1e-3);
  auto const stays = [&](std::vector<float> const& values) {
    for (auto const& v : variables)
      for (auto i = v.offset - plan::header; i < v.end() - plan::header; ++i)
        if (std::string_view{v.name}.starts_with("batch_normalization")) REQUIRE(values[i] == begin[i]);
  };
  auto const check = [&](auto trainer, auto still) {
    set(trainer), set(still);
    CHECK(still.fit(data, watched)[0].scores.loss() == Approx(still.evaluate(data).loss()).epsilon(1e-6));
    trainer.fit(data, watched);
    auto const got = tiny::values_of(trainer);
    stays(got);
    CHECK(norm::difference(variables, got, want) < 1e-5);
  };
  auto const under = [&](auto const& strategy) {
    check(with_frozen<N>(strategy), with_frozen<N>(strategy, RingAllReduce{}, 0));
  };
  stays(want);
  under(MirroredStrategy{Cpu::logical(1)});
  under(MirroredStrategy{Cpu::logical(3)});
  under(CentralStorageStrategy{Cpu::logical(2)});
  under(ShardedStrategy<std::is_same_v<N, Apart> ? Zero::three : Zero::one>{Cpu::logical(3)});
}

}  // namespace

TEST_CASE("frozen normalizations use their averages in fit as in evaluate, and keep them", "[strategy][batch_norm]") {
  check_frozen<Normed>(uneven());
  check_frozen<Apart>(uneven());
  auto const rows = tiny::batch<int>(234, 64, 1);
  check_frozen<Drawn>(data::from_fields<Pixels, Kind>(rows.x, rows.y).batch(17));
}

TEST_CASE("local moving statistics move to the mean over replicas, each by its rows", "[strategy][batch_norm]") {
  struct Plain : nn::Sequential<nn::Input<2>, nn::BatchNorm<nn::Momentum<60>>, nn::Dense<2>> {};
  auto const rows = tiny::batch<int>(5, 2, 1);  // shares of 2, 2, and 1, or so
  auto trainer    = learner<Plain>(MirroredStrategy{Cpu::logical(3)});
  trainer.fit(tiny::Batches<int>{rows, {5}}, watched);
  for (std::size_t c = 0; c < 2; ++c) {
    double mean = 0, variance = 0;
    for (int replica = 0; replica < 3; ++replica) {
      auto const mine = share(5, replica, 3);
      double sum = 0, squares = 0;
      for (auto r = mine.begin; r < mine.end; ++r) {
        auto const x = static_cast<double>(rows.x[2 * r + c]);
        sum += x, squares += x * x;
      }
      auto const n = static_cast<double>(mine.size());
      mean += sum / 5;
      variance += (squares - sum * sum / n) / 5;
    }
    for (auto& copy : trainer.copies()) {
      auto const variables = copy.net.variables();
      CHECK(static_cast<double>(variables[2].value[c]) == Approx(0.4 * mean).epsilon(1e-5));
      CHECK(static_cast<double>(variables[3].value[c]) == Approx(0.6 + 0.4 * variance).epsilon(1e-5));
    }
  }
}

TEST_CASE("replicas that learn apart average what their layers saw", "[strategy][batch_norm]") {
  auto eight = learner<LocalNet>(local_sgd<8>(MirroredStrategy{Cpu::logical(3)}));
  auto pairs = learner<LocalNet>(Gossip{MirroredStrategy{Cpu::logical(3)}});
  eight.fit(uneven(), quietly);
  pairs.fit(uneven(), quietly);
  for (auto const hash : eight.hashes()) CHECK(hash == eight.hashes()[0]);
  for (auto const hash : pairs.hashes()) CHECK(hash == pairs.hashes()[0]);
  CHECK(eight.copies()[0].net.variables()[2].value[0] != 0);
}

TEST_CASE("under Reproducible each shard is normalized: the same bits on any replicas", "[strategy][batch_norm]") {
  auto const hash = [](int replicas) {
    auto trainer = learner<LocalNet>(MirroredStrategy{Cpu::logical(replicas)}, Reproducible<4>{});
    trainer.fit(uneven(), watched);
    return trainer.hashes()[0];
  };
  auto const one = hash(1);
  CHECK(hash(2) == one);
  CHECK(hash(4) == one);
}

TEST_CASE("several batches may be one update of a network that normalizes together", "[strategy][batch_norm]") {
  auto const in_twos = FitOptions{.show = Show::nothing, .compare_every = 1, .accumulate = 2};
  auto one           = learner<SyncNet>(MirroredStrategy{Cpu::logical(1)});
  auto three         = learner<SyncNet>(MirroredStrategy{Cpu::logical(3)});
  one.fit(uneven(), in_twos);
  three.fit(uneven(), in_twos);
  CHECK(norm::difference(SyncNet::plan.variables, tiny::values_of(three), tiny::values_of(one)) < 1e-5);
}

TEST_CASE("moving statistics are saved and loaded, and the other layer takes them", "[strategy][batch_norm]") {
  auto const folder = chorale::test::Folder{};
  auto const file   = folder / "weights";
  auto from         = learner<SyncNet>(MirroredStrategy{Cpu::logical(2)});
  auto to           = learner<LocalNet>(MirroredStrategy{Cpu::logical(3)});
  from.fit(uneven(), quietly);
  from.save(file);
  CHECK(SafetensorsFile::read(file).floats("batch_normalization_1/moving_variance").size() == 16);
  to.load(file);
  for (auto const hash : to.hashes()) CHECK(hash == from.hashes()[0]);
  CHECK(to.evaluate(uneven()).loss() == Approx(from.evaluate(uneven()).loss()).epsilon(1e-6));
}

TEST_CASE("a fit goes on from a checkpoint with its moving statistics, bit by bit", "[strategy][batch_norm]") {
  auto const folder = chorale::test::Folder{};
  auto options      = FitOptions{.epochs = 2, .show = Show::nothing};
  auto whole        = learner<SyncNet>(MirroredStrategy{Cpu::logical(2)});
  whole.fit(uneven(), options);
  options.checkpoints.folder = folder.path;
  options.epochs             = 1;
  learner<SyncNet>(MirroredStrategy{Cpu::logical(2)}).fit(uneven(), options);
  options.epochs = 2;
  auto resumed   = learner<SyncNet>(MirroredStrategy{Cpu::logical(2)});
  resumed.fit(uneven(), options);
  CHECK(resumed.copies()[0].optimizer.now.step == whole.copies()[0].optimizer.now.step);
  CHECK(resumed.hashes()[0] == whole.hashes()[0]);
}

TEST_CASE("evaluation uses the moving statistics, whatever the batches and replicas", "[strategy][batch_norm]") {
  auto trainer = learner<LocalNet>(MirroredStrategy{Cpu::logical(3)});
  trainer.fit(uneven(), quietly);
  auto const before = trainer.hashes()[0];
  auto ones         = uneven();
  ones.sizes.assign(234, 1);  // two of three shares are empty
  CHECK(trainer.evaluate(ones).loss() == Approx(trainer.evaluate(uneven()).loss()).epsilon(1e-6));
  auto const all = trainer.predict(uneven()), singly = trainer.predict(ones);
  for (std::size_t i = 0; i < all.values.size(); ++i) CHECK(singly.values[i] == Approx(all.values[i]).margin(1e-5));
  CHECK(trainer.hashes()[0] == before);
}

TEST_CASE("a replica that fails releases those that wait for its sums", "[strategy][batch_norm]") {
  auto trainer  = learner<SyncNet>(MirroredStrategy{Cpu::logical(3)});
  auto bad      = uneven();
  bad.rows.y[2] = 3;  // in the share of one replica
  CHECK_THROWS_WITH(trainer.fit(bad, quietly), Catch::Contains("has label 3"));
  CHECK_NOTHROW(trainer.fit(uneven(), watched));
  bad               = uneven();
  bad.rows.x[3]     = std::numeric_limits<float>::quiet_NaN();
  auto const before = trainer.hashes()[0];
  CHECK_THROWS_AS(trainer.fit(bad, quietly), NumericFault);
  for (auto const hash : trainer.hashes()) CHECK(hash == before);
}

TEMPLATE_TEST_CASE("a convolution with batch normalization learns, and evaluates what it learned",
                   "[strategy][batch_norm]", LocalNet, SyncNet) {
  auto data = uneven();  // label: is the upper half the brighter one?
  for (std::size_t r = 0; r < data.rows.rows; ++r)
    for (std::size_t i = 0; i < 32; ++i) data.rows.x[64 * r + i] += data.rows.y[r] == 1 ? 0.5F : -0.5F;
  auto trainer       = learner<TestType>(MirroredStrategy{Cpu::logical(2)});
  auto const history = trainer.fit(data, {.epochs = 30, .show = Show::nothing});
  CHECK(history.back().scores.loss() < 0.5 * history.front().scores.loss());
  CHECK(trainer.evaluate(data).metric(0) > 0.95);
}

TEST_CASE("sums of one model are refused while another's gradients are on their way", "[strategy][batch_norm]") {
  auto const model = nn::compile<SyncNet>(loss::SparseCrossEntropy{}, optim::SGD{});
  auto const rows  = tiny::batch<int>(4, 64, 1);
  auto live        = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto first = live.create(model), second = live.create(model);
  auto const step = [&](auto& replica, auto& one, auto& two) {
    replica.value_and_gradient_ahead(one, rows.view());
    replica.value_and_gradient_ahead(two, rows.view());
  };
  CHECK_THROWS_WITH(live.run(step, first, second), Catch::Contains("gradients are on their way"));
}
