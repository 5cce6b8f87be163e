// SPDX-License-Identifier: Apache-2.0
//
// The transport, the reduce and the strategy of docs/60-write-your-own.md keep what ours promise. Their code comes out of that page.
#include "test/docs/own_chain.hpp"
#include "test/docs/own_differences.hpp"
#include "test/docs/own_loss.hpp"
#include "test/docs/own_mailbox.hpp"
#include "test/docs/own_rule.hpp"
#include "test/docs/own_state.hpp"
#include "test/docs/own_strategy.hpp"
#include "test/support/on_ranks.hpp"
#include "test/support/reference.hpp"

#include <chorale/chorale.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

template <class R, class T> struct Over {
  static_assert(ReduceAlgorithm<R, T>);
  using reduce    = R;
  using transport = T;
};

}  // namespace

namespace my {

/// A layer of one's own without a word about it.
template <int N> struct Same : nn::ReLU {};

}  // namespace my

struct OwnNet : nn::Sequential<nn::Input<4>, my::Same<3>, nn::Dense<2>> {};

TEMPLATE_TEST_CASE("one's own transport and reduce give the sum, the same bits on every rank", "[docs][own]",
                   (Over<RingAllReduce, MailboxTransport>), (Over<HalvingDoublingAllReduce, MailboxTransport>),
                   (Over<ChainAllReduce, MailboxTransport>), (Over<ChainAllReduce, LocalTransport>)) {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 5, 10'007);
  auto const ended = on_ranks<typename TestType::transport>(
      ranks, n, [](auto& at, auto& x) { typename TestType::reduce{}.all_reduce(at, x, Op::sum); });
  auto const serial = serial_reference(ranks, n, Op::sum, [](std::size_t) { return 0; });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, ended[0].x));
    for (std::size_t i = 0; i < n; i += 97) CHECK(rank.x[i] == Approx(serial[i]).epsilon(1e-4).margin(1e-2));
  }
}

TEST_CASE("one's own reduce sends what its cost says", "[docs][own]") {
  auto const ranks = GENERATE(1, 2, 3, 7);
  auto busiest     = std::size_t{0};
  for (auto const &rank : on_ranks<Counting<LocalTransport>>(
           ranks, 1'344, [](auto& at, auto& x) { ChainAllReduce{}.all_reduce(at, x, Op::sum); }))
    busiest = std::max(busiest, rank.cost.bytes);
  CHECK(busiest == ChainAllReduce::cost(ranks, 1'344 * sizeof(float)).bytes);
  CHECK(depth<ChainAllReduce>(ranks) == ChainAllReduce::cost(ranks, 0).steps);
}

TEST_CASE("a rank that fails over one's own transport is named by all others", "[docs][own]") {
  auto const ended = on_ranks<MailboxTransport>(4, 10'007, [](auto& at, auto& x) {
    RingAllReduce{}.all_reduce(at, x, Op::sum);
    if (at.rank() == 2) throw Error{"the disk is full."};
    RingAllReduce{}.all_reduce(at, x, Op::sum);
  });
  for (Rank rank = 0; rank < 4; ++rank) {
    CHECK_THAT(ended[static_cast<std::size_t>(rank)].error, Catch::Contains("the disk is full"));
    if (rank != 2) CHECK(ended[static_cast<std::size_t>(rank)].lost == 2);
  }
}

TEST_CASE("messages of one tag keep their order, and sizes must agree", "[docs][own]") {
  auto const ended = on_ranks<MailboxTransport>(2, 3, [](auto& at, auto& x) {
    auto const one = [&](std::size_t i) { return x.subspan(i, 1); };
    if (at.rank() == 0) {
      for (std::size_t i = 0; i < 3; ++i) x[i] = static_cast<float>(i), at.send(1, Tag{5}, std::as_bytes(one(i)));
      at.send(1, Tag{6}, std::as_bytes(x));
    } else {
      for (std::size_t i = 0; i < 3; ++i) at.recv(0, Tag{5}, std::as_writable_bytes(one(i))).wait();
      for (std::size_t i = 0; i < 3; ++i)
        if (x[i] != static_cast<float>(i)) throw Error{"out of order"};
      at.recv(0, Tag{6}, std::as_writable_bytes(one(0))).wait();
    }
  });
  CHECK_THAT(ended[1].error, Catch::Contains("a message of 12 bytes came where 4 were expected"));
}

TEST_CASE("one's own layer and optimizer train, and say what ranks compare", "[docs][own]") {
  auto const model = nn::compile<OwnNet>(loss::MeanSquaredError{}, my::SignDescent{.threshold = 0.1F});
  auto const lines = model.lines();
  for (auto const* line : {"optimizer my::SignDescent", "optimizer my::SignDescent learning_rate 1e-04",
                           "optimizer my::SignDescent threshold 0.1", "layer 1 my::Same<3>"})
    CHECK(std::ranges::count(lines, std::string{line}) == 1);
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 7};
  auto const x = std::vector<float>(32, 1.0F), y = std::vector<float>(16, 2.0F);
  auto const history = trainer.fit(data::from_tensors(x, y, 4).batch(4), {.epochs = 20, .show = Show::nothing});
  CHECK(history.back().scores.loss() < history.front().scores.loss());
}

TEST_CASE("one's own layer over sequences has the gradient of differences, ragged or not", "[docs][own]") {
  CHECK(my::error() < 1e-3);
}

TEST_CASE("one's own loss has the gradient of differences, and its metric is a sum over rows", "[docs][own]") {
  auto y            = std::vector<float>{0.5F, 1.2F, -0.3F, 2.0F, 0.8F, 1.9F};  // (2, 3)
  auto const labels = std::vector<int>{1, 0};
  auto dy = std::vector<float>(y.size(), 7.0F), unused = dy;
  auto const loss = loss::Weighted{my::Ranking{}, {2, 1, 1}};
  auto const sum  = [&](std::vector<float>& d) {
    return loss::sum_of<Cpu>(loss, 2, 3, y.data(), labels.data(), d.data());
  };
  CHECK(sum(dy) == Approx(0.3 + 2 * 0.9));
  for (std::size_t i = 0; i < y.size(); ++i) {
    auto const keep = y[i];
    y[i]            = keep + 1e-3F;
    auto const up   = sum(unused);
    y[i]            = keep - 1e-3F;
    auto const down = sum(unused);
    y[i]            = keep;
    CHECK(dy[i] == Approx((up - down) / 2e-3F).margin(2e-3));
  }
  CHECK(metric::sum_of(my::Rivals{}, 2, 3, y.data(), labels.data()) == 0);
  y[3] = 1.5F;
  CHECK(metric::sum_of(my::Rivals{}, 2, 3, y.data(), labels.data()) == 1);
  auto lines = std::vector<std::string>{};
  describe("loss", my::Ranking{}, lines);
  CHECK(lines == std::vector<std::string>{"loss my::Ranking", "loss my::Ranking margin 1"});
}

TEST_CASE("one's own metric with a state is exact for any shares", "[docs][own]") {
  using Metric      = my::BalancedAccuracy<2>;
  auto const y      = std::vector<float>{1, 0, 1, 0, 0, 1, 1, 0, 1, 0};  // (5, 2)
  auto const labels = std::vector<int>{0, 0, 0, 1, 1};
  auto whole        = metric::Counts<Metric>{};
  whole.add({}, 5, 2, y.data(), labels.data());
  CHECK(whole.result({}) == Approx((2.0 / 3 + 0.0) / 2));
  auto first = metric::Counts<Metric>{}, last = first;
  first.add({}, 2, 2, y.data(), labels.data());
  last.add({}, 3, 2, y.data() + 4, labels.data() + 2);
  CHECK((last += first) == whole);
  CHECK(metric::Counts<Metric>{}.result({}) == 0);

  auto x    = std::vector<float>(4 * 37);
  auto kind = std::vector<int>(37);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{3, 0}.uniform(i, -1, 1);
  for (std::size_t r = 0; r < kind.size(); ++r) kind[r] = x[4 * r] > 0.5F ? 1 : 0;
  auto const data    = data::from_tensors(x, kind, 4).batch(5);
  auto const learned = [&](int replicas) {
    auto const rule    = optim::Adam{.learning_rate = 0.05F};
    auto trainer       = Trainer{nn::compile<OwnNet>(loss::SparseCrossEntropy{}, rule, Metric{}),
                           MirroredStrategy{Cpu::logical(replicas)}, Reproducible<4>{}, LocalTransport{}, 7};
    auto const history = trainer.fit(data, {.epochs = 20, .show = Show::nothing});
    return std::pair{history, trainer.evaluate(data)};
  };
  auto const [one, tested]  = learned(1);
  auto const [three, other] = learned(3);
  for (std::size_t epoch = 0; epoch < 20; ++epoch)
    CHECK(three[epoch].scores["balanced_accuracy"] == one[epoch].scores["balanced_accuracy"]);
  CHECK(one.back().scores["balanced_accuracy"] > one.front().scores["balanced_accuracy"]);
  CHECK(other["balanced_accuracy"] == tested["balanced_accuracy"]);
}

TEST_CASE("one's own loss and metric train, on two replicas as on one", "[docs][own]") {
  auto x      = std::vector<float>(64);
  auto labels = std::vector<int>(16);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{3, 0}.uniform(i, -1, 1);
  for (std::size_t r = 0; r < labels.size(); ++r) labels[r] = x[4 * r] > 0 ? 1 : 0;
  auto const learned = [&](int replicas) {
    auto const rule = optim::Adam{.learning_rate = 0.05F};
    auto trainer    = Trainer{nn::compile<OwnNet>(my::Ranking{.margin = 2}, rule, my::Rivals{}),
                           MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}, 7};
    return trainer.fit(data::from_tensors(x, labels, 4).batch(5), {.epochs = 30, .show = Show::nothing});
  };
  auto const one = learned(1), two = learned(2);
  CHECK(one.back().scores.loss() < 0.5 * one.front().scores.loss());
  CHECK(one.back().scores["rivals"] < one.front().scores["rivals"]);
  CHECK(two.back().scores.loss() == Approx(one.back().scores.loss()).epsilon(1e-3));
}

namespace {

template <class S> std::vector<std::uint64_t> hashes_under(S strategy) {
  auto trainer = tiny::learner_under(std::move(strategy), RingAllReduce{}, LocalTransport{});
  trainer.fit(tiny::uneven(), {.epochs = 2, .show = Show::nothing});
  return trainer.hashes();
}

}  // namespace

TEST_CASE("one's own strategy is the sum of its two halves, bit by bit", "[docs][own]") {
  auto const replicas = GENERATE(2, 3);
  auto const base     = MirroredStrategy{Cpu::logical(replicas)};
  CHECK(hashes_under(PostLocalSgd<1'000'000, 4>{base}) == hashes_under(base));
  CHECK(hashes_under(PostLocalSgd<0, 4>{base}) == hashes_under(local_sgd<4>(base)));
  auto const both = hashes_under(PostLocalSgd<7, 4>{base});
  for (auto const hash : both) CHECK(hash == both[0]);
  CHECK(both != hashes_under(base));
  CHECK(both != hashes_under(local_sgd<4>(base)));
}
