// SPDX-License-Identifier: Apache-2.0
//
// Stages of a pipeline against one device that computes each micro-batch by itself, and adds them up along one tree.
#include "test/support/count_allocations.hpp"
#include "test/support/on_ranks.hpp"

#include <chorale/data/typed_rows.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/model/copy.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/nn/pipeline/stage_learner.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/strategy/pipeline/stage_messages.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

struct Tokens : Field<int, 3> {};
struct Next : Field<int, 1> {};
struct Mean : Field<float, 2> {};

constexpr int words = 11, wide = 6;

/// Eight layers with variables and more calls, a residual over most of them, a head that is tied to the table of words,
/// an output in the middle, and dropout.
struct Net : nn::Graph<Tokens> {
  nn::Embedding<words, wide, nn::DenseGradient> table{"words"};
  nn::Dense<3 * wide> a{"a"}, b{"b"}, c{"c"}, d{"d"};
  nn::LayerNorm norm{"norm"}, last{"last"};
  nn::Dense<wide> narrow{"narrow"};
  nn::Dense<2> mean{"mean"};

  constexpr auto operator()(auto tokens) const {
    auto const first = nn::reshape<3 * wide>(table(tokens));
    auto const x     = nn::Dropout<20>{}(nn::Tanh{}(a(first)));
    auto const y     = norm(x + nn::ReLU{}(b(x)));
    auto const aside = mean(y);
    auto const z     = d(nn::Tanh{}(c(y))) + first + y;  // first and y are read in three places
    return nn::outputs<Mean, Next>(aside, table.logits(narrow(last(z))));
  }
};

/// Three stages, the first two of which end where the network says.
struct Named : nn::Graph<Tokens> {
  nn::Embedding<words, wide, nn::DenseGradient> table{"words"};
  nn::Dense<wide> a{"a"}, b{"b"}, c{"c"};

  constexpr auto operator()(auto tokens) const {
    auto const x = nn::stage_ends_after(nn::ReLU{}(a(nn::reshape<3 * wide>(table(tokens)))));
    return nn::outputs<Next>(c(nn::stage_ends_after(b(x))));
  }
};
constexpr bool is_cut_as_named() {
  constexpr auto const& g = nn::graph::Traced<Named, nn::graph::NoDevice>::calls;
  auto const cut          = nn::graph::cut_of(g, g.cuts, 3);
  return cut.flaw == nn::graph::CutFlaw::none && cut.ends.size() == 3 && cut.ends[0] == 4 && cut.ends[1] == 5 &&
         cut.ends[2] == 6;
}
static_assert(is_cut_as_named());
constexpr nn::graph::CutFlaw flaw_of_two() {
  constexpr auto const& g = nn::graph::Traced<Named, nn::graph::NoDevice>::calls;
  auto const cut          = nn::graph::cut_of(g, g.cuts, 2);
  return cut.flaw;
}
static_assert(flaw_of_two() == nn::graph::CutFlaw::named_others);

struct Picture : Field<float, 6, 6, 1> {};
struct Seen : Field<float, 2> {};
/// Convolutions, whose kernels set the gradients of their variables, and one that is called twice.
struct Pictures : nn::Graph<Picture> {
  nn::Conv2D<3, 3, nn::Same> a{"a"};
  nn::Conv2D<3, 3, nn::Same> b{"b"};
  nn::Dense<2> c{"c"};

  constexpr auto operator()(auto x) const {
    return nn::outputs<Seen>(c(nn::reshape<108>(b(nn::Tanh{}(b(nn::Tanh{}(a(x))))))));
  }
};

using Batch = Rows<Tokens, Mean, Next>;

auto model() {
  return nn::compile<Net>(nn::of<Next>(loss::SparseCrossEntropy{}) + 0.5F * nn::of<Mean>(loss::MeanSquaredError{}),
                          optim::Adam{.learning_rate = 0.01F}, nn::of<Next>(metric::Accuracy{}));
}
/// Rows that own their memory.
struct Owned {
  std::vector<int> tokens, next;
  std::vector<float> mean;
  std::size_t n;

  explicit Owned(std::size_t rows, std::uint64_t seed) : n{rows} {
    auto const random = Random{seed, 0};
    for (std::size_t i = 0; i < 3 * n; ++i) tokens.push_back(static_cast<int>(random.uniform(i, 0, words)));
    for (std::size_t i = 0; i < n; ++i) next.push_back((tokens[3 * i] + tokens[3 * i + 1]) % words);
    for (std::size_t i = 0; i < 2 * n; ++i) mean.push_back(random.uniform(1000 + i, -1, 1));
  }
  Batch view() const {
    auto batch                  = Batch{};
    std::get<0>(batch.fields()) = tokens;
    std::get<1>(batch.fields()) = mean;
    std::get<2>(batch.fields()) = next;
    batch.rows                  = n;
    return batch;
  }
};

/// Gradients of micro-batches, added up along the tree of so many leaves.
struct TreeSums final : pipelines::MicroBatchSums {
  TreeSums(std::size_t size, int leaves) : shards{leaves}, of_leaf(static_cast<std::size_t>(leaves)) {
    sums.resize(size);
  }

  Span<float> of(int k) override {
    auto& leaf = of_leaf[static_cast<std::size_t>(k)];
    if (leaf == nullptr) {
      leaf = sums.memory();
      std::fill_n(leaf.get(), sums.size(), 0.0F);
    }
    return {leaf.get(), sums.size()};
  }
  void complete(int k) override { sums.add(shards + k, std::move(of_leaf[static_cast<std::size_t>(k)])); }
  /// Ends a step: the sum of all, to which micro-batches without rows add zeros.
  void end(Span<float> to, std::vector<Range> const& rows) {
    for (int k = 0; k < shards; ++k)
      if (rows[static_cast<std::size_t>(k)].size() == 0) of(k), complete(k);
    std::copy_n(sums.at(1), to.size(), to.begin());
    sums.clear();
  }

  int shards;
  shard_tree::Sums sums;
  std::vector<std::unique_ptr<float[]>> of_leaf;
};

std::vector<Range> cut(std::size_t rows, int m) {
  auto all = std::vector<Range>{};
  for (int k = 0; k < m; ++k) all.push_back(share(rows, k, m));
  return all;
}

/// All variables by name, and the loss of the last step.
using Learned = std::map<std::string, std::vector<float>>;
template <class Copy> void remember(Copy& copy, Learned& all) {
  auto const variables = copy.net.variables();
  for (std::size_t i = 0; i < variables.size(); ++i)
    all[std::string{variables[i].name}] = {variables[i].value.begin(), variables[i].value.end()};
}

constexpr int steps = 20;
/// The rows of a step: most do not divide by the micro-batches, and some are fewer.
std::size_t rows_of(int step) { return std::vector<std::size_t>{16, 13, 3, 17}[static_cast<std::size_t>(step % 4)]; }

/// What one device learns from micro-batches that are added up along the tree; or, with m = 0, from whole batches.
Learned on_one(int m) {
  auto const compiled = model();
  auto copy           = compiled.instantiate(Cpu::logical(1)[0], 7);
  auto gradients      = copy.gradients();
  auto all            = Learned{};
  for (int step = 0; step < steps; ++step) {
    auto const data  = Owned{rows_of(step), static_cast<std::uint64_t>(step + 1)};
    auto const batch = data.view();
    if (m == 0) {
      copy.value_and_gradient(batch, 0, LooksAtEnd{});
    } else {
      auto tree       = TreeSums{gradients.values.size(), m};
      auto const rows = cut(batch.rows, m);
      for (int k = 0; k < m; ++k) {
        auto const part = batch.rows_in(rows[static_cast<std::size_t>(k)]);
        copy.value_and_gradient(part, part.first_row, LooksAtEnd{});
        std::ranges::copy(gradients.values, tree.of(k).begin());
        tree.complete(k);
      }
      tree.end(gradients.values, rows);
    }
    all["loss"]     = {gradients.loss()};
    all["accuracy"] = {gradients.header().metric(2)};
    copy.optimizer.apply(copy.net.variables(), gradients);
  }
  remember(copy, all);
  return all;
}

/// What stages learn, in threads; adds up along the tree, or in the order of the schedule.
template <class S>
Learned in_stages(int stages, bool along_tree, std::vector<std::vector<std::size_t>>* executors = nullptr) {
  auto const even     = executors != nullptr;  // all micro-batches have equally many rows
  constexpr int m     = S::micro_batches;
  auto const compiled = model();
  auto const whole    = nn::graph::whole_of<Net, Cpu>();
  auto const ends     = nn::graph::cut_of(whole.g, {}, stages * S::chunks);
  REQUIRE(ends.flaw == nn::graph::CutFlaw::none);
  auto all           = std::vector<Learned>(static_cast<std::size_t>(stages));
  auto count         = std::vector<std::vector<std::size_t>>(static_cast<std::size_t>(stages));
  auto const results = test::on_ranks<LocalTransport>(stages, 1, [&](LocalEndpoint& at, Span<float>) {
    auto const schedule = pipelines::schedule_of<S>(at.rank(), stages);
    auto messages       = detail::StageMessages<LocalEndpoint>{at, Tag{16}};
    using Learner       = nn::graph::StageLearner<Net, Cpu, decltype(compiled.losses), decltype(compiled.metrics)>;
    auto learner        = Learner{Cpu::logical(1)[0], compiled.losses, compiled.metrics, schedule, ends.ends};
    auto const plan     = RunTimePlan{learner.variables().shapes};
    auto copy = custom::Copy<Cpu, Learner, optim::Adam, RunTimePlan>{Cpu::logical(1)[0], std::move(learner), plan,
                                                                     compiled.optimizer, 7};
    copy.learner().join(&messages);
    auto gradients = copy.gradients();
    auto& mine     = all[static_cast<std::size_t>(at.rank())];
    for (int step = 0; step < steps; ++step) {
      auto const data  = Owned{even ? 16 : rows_of(step), static_cast<std::uint64_t>(step + 1)};
      auto const batch = data.view();
      auto tree        = TreeSums{gradients.values.size(), m};
      auto const rows  = cut(batch.rows, m);
      if (along_tree) copy.learner().add_to(&tree, rows);
      copy.value_and_gradient(batch, 0, LooksAtEnd{});
      if (along_tree) tree.end(gradients.values, rows);
      copy.learner().share_ties(gradients);
      if (at.rank() == schedule.stage_of.back()) {
        mine["loss"]     = {gradients.loss()};
        mine["accuracy"] = {gradients.header().metric(2)};
      }
      gradients.header().loss() = 1;
      copy.optimizer.apply(copy.net.variables(), gradients);
    }
    remember(copy, mine);
    for (std::size_t c = 0; c < S::chunks; ++c)
      count[static_cast<std::size_t>(at.rank())].push_back(copy.learner().executors(c));
  });
  for (auto const& result : results) CHECK(result.error == "");
  if (executors != nullptr) *executors = count;
  auto whole_state = Learned{};
  for (auto const& one : all)
    for (auto const& [name, values] : one) {
      INFO(name);
      if (whole_state.contains(name)) CHECK(whole_state[name] == values);  // tied: equal bits on both stages
      whole_state[name] = values;
    }
  return whole_state;
}

template <int m> using TwoChunks = Interleaved<m, 2>;

/// What one device learns, for each number of micro-batches.
struct Reference {
  Learned one = on_one(1), four = on_one(4), eight = on_one(8);
};
Reference const& reference() {
  static auto const all = Reference{};
  return all;
}

/// The largest difference of any two numbers.
double apart(Learned const& a, Learned const& b) {
  auto worst = a.size() == b.size() ? 0.0 : 1e30;
  for (auto const& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::abs(values[i] - b.at(name)[i])));
  return worst;
}

/// Executors are as many as the schedule's activations, of each chunk.
template <class S, int stages> void check_peaks() {
  using T        = pipelines::Timetable<S, stages>;
  auto executors = std::vector<std::vector<std::size_t>>{};
  in_stages<S>(stages, true, &executors);
  for (int s = 0; s < stages; ++s)
    for (int c = 0; c < S::chunks; ++c) {
      CAPTURE(s, c);
      auto const made = executors[static_cast<std::size_t>(s)][static_cast<std::size_t>(c)];
      CHECK(made == static_cast<std::size_t>(T::peak(s, c)));
    }
}

template <class S> void check_stages(Learned const& one, std::vector<int> const& numbers) {
  for (int const stages : numbers) {
    CAPTURE(stages);
    CHECK(in_stages<S>(stages, true) == one);
  }
}
template <template <int> class S> void check_schedule() {
  check_stages<S<1>>(reference().one, {2, 3, 4});
  check_stages<S<4>>(reference().four, {2, 3, 4});
  check_stages<S<8>>(reference().eight, {2, 3, 4});
}

}  // namespace

TEST_CASE("stages learn the bits of one device: one forward, one backward", "[nn][pipeline]") {
  REQUIRE(reference().one != reference().four);  // the tree is another
  REQUIRE(on_one(0) == reference().one);
  check_schedule<OneForwardOneBackward>();
}
TEST_CASE("stages learn the bits of one device: all forward, all backward", "[nn][pipeline]") {
  check_schedule<AllForwardAllBackward>();
}
TEST_CASE("stages learn the bits of one device: backward by inputs and by weights apart", "[nn][pipeline]") {
  check_schedule<ZeroBubbleH1>();
}
TEST_CASE("stages learn the bits of one device: two chunks, there and back", "[nn][pipeline]") {
  check_schedule<ZeroBubbleV>();
}
TEST_CASE("stages learn the bits of one device: two chunks in turn", "[nn][pipeline]") { check_schedule<TwoChunks>(); }

TEST_CASE("stages that add up in the order of the schedule learn what one device learns", "[nn][pipeline]") {
  auto const whole = on_one(0);
  CHECK(apart(in_stages<OneForwardOneBackward<1>>(3, false), whole) < 1e-5);
  CHECK(apart(in_stages<OneForwardOneBackward<4>>(3, false), whole) < 1e-5);
  CHECK(apart(in_stages<ZeroBubbleH1<8>>(4, false), whole) < 1e-5);
  CHECK(apart(in_stages<ZeroBubbleV<4>>(2, false), whole) < 1e-5);
  CHECK(apart(in_stages<TwoChunks<8>>(2, false), whole) < 1e-5);
}

TEST_CASE("gradients that a layer only sets are added up over micro-batches", "[nn][pipeline]") {
  using S             = OneForwardOneBackward<4>;
  auto const compiled = nn::compile<Pictures>(loss::MeanSquaredError{}, optim::SGD{});
  auto const ends     = nn::graph::cut_of(nn::graph::whole_of<Pictures, Cpu>().g, {}, 2).ends;
  auto x = std::vector<float>(10 * 36), y = std::vector<float>(10 * 2, 0.5F);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{5, 0}.uniform(i, -1, 1);
  auto const batch = Rows<Picture, Seen>{Span<float const>{x}, Span<float const>{y}};
  auto one         = compiled.instantiate(Cpu::logical(1)[0], 7);
  auto all         = std::map<std::string, std::vector<float>>{};
  one.value_and_gradient(batch, 0, LooksAtEnd{});
  test::on_ranks<LocalTransport>(2, 1, [&](LocalEndpoint& at, Span<float>) {
    auto messages = detail::StageMessages<LocalEndpoint>{at, Tag{16}};
    using Learner = nn::graph::StageLearner<Pictures, Cpu, decltype(compiled.losses), decltype(compiled.metrics)>;
    auto learner =
        Learner{Cpu::logical(1)[0], compiled.losses, compiled.metrics, pipelines::schedule_of<S>(at.rank(), 2), ends};
    auto const plan = RunTimePlan{learner.variables().shapes};
    auto copy       = custom::Copy<Cpu, Learner, optim::SGD, RunTimePlan>{Cpu::logical(1)[0], std::move(learner), plan,
                                                                          compiled.optimizer, 7};
    copy.learner().join(&messages);
    for (int i = 0; i < 2; ++i) {
      copy.value_and_gradient(batch, 0, LooksAtEnd{});
      copy.learner().share_ties(copy.gradients());
    }
    static auto alone = std::mutex{};
    auto const lock   = std::lock_guard{alone};
    for (std::size_t i = 0; i < copy.net.variables().size(); ++i) {
      auto const d                                   = copy.gradients()[i];
      all[std::string{copy.net.variables()[i].name}] = {d.begin(), d.end()};
    }
  });
  REQUIRE(all.size() == one.net.variables().size());
  for (std::size_t i = 0; i < one.net.variables().size(); ++i) {
    CAPTURE(one.net.variables()[i].name);
    auto const wanted = one.gradients()[i];
    auto const& got   = all.at(std::string{one.net.variables()[i].name});
    REQUIRE(got.size() == wanted.size());
    CHECK(std::ranges::any_of(got, [](float d) { return d != 0; }));
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(wanted[k]).margin(1e-5));
  }
}

TEST_CASE("a stage has as many executors as the schedule has activations", "[nn][pipeline]") {
  check_peaks<AllForwardAllBackward<8>, 4>();
  check_peaks<OneForwardOneBackward<8>, 4>();
  check_peaks<ZeroBubbleH1<8>, 3>();
  check_peaks<ZeroBubbleV<4>, 3>();
  check_peaks<TwoChunks<8>, 2>();
}

namespace {

struct Numbers : Field<float, 4> {};
struct Wanted : Field<float, 4> {};
/// A network whose layers allocate nothing themselves, as those of oneDNN do; a value is read by two sections.
struct Norms : nn::Graph<Numbers> {
  nn::LayerNorm a{"a"}, b{"b"}, c{"c"};
  constexpr auto operator()(auto x) const {
    auto const y = a(x);
    return nn::outputs<Wanted>(c(b(y) + y) + y);
  }
};

}  // namespace

TEST_CASE("a step of a stage allocates nothing once its rows were seen", "[nn][pipeline]") {
  using S             = ZeroBubbleH1<4>;
  auto const compiled = nn::compile<Norms>(loss::MeanSquaredError{}, optim::SGD{});
  auto const whole    = nn::graph::whole_of<Norms, Cpu>();
  auto const ends     = nn::graph::cut_of(whole.g, {}, 3);
  auto allocations    = std::vector<int>(3, -1);
  test::on_ranks<LocalTransport>(3, 1, [&](LocalEndpoint& at, Span<float>) {
    auto messages   = detail::StageMessages<LocalEndpoint>{at, Tag{16}};
    using Learner   = nn::graph::StageLearner<Norms, Cpu, decltype(compiled.losses), decltype(compiled.metrics)>;
    auto learner    = Learner{Cpu::logical(1)[0], compiled.losses, compiled.metrics,
                           pipelines::schedule_of<S>(at.rank(), 3), ends.ends};
    auto const plan = RunTimePlan{learner.variables().shapes};
    auto copy       = custom::Copy<Cpu, Learner, optim::SGD, RunTimePlan>{Cpu::logical(1)[0], std::move(learner), plan,
                                                                          compiled.optimizer, 7};
    copy.learner().join(&messages);
    auto const numbers = std::vector<float>(4 * 13, 0.5F);  // 13 rows: micro-batches of 3 and 4
    auto const batch   = Rows<Numbers, Wanted>{Span<float const>{numbers}, Span<float const>{numbers}};
    auto const step    = [&] {
      copy.value_and_gradient(batch, 0, LooksAtEnd{});
      copy.learner().share_ties(copy.gradients());
    };
    for (int i = 0; i < 3; ++i) step();
    auto const before = test::allocations;
    for (int i = 0; i < 20; ++i) step();
    allocations[static_cast<std::size_t>(at.rank())] = test::allocations - before;
  });
  CHECK(allocations == std::vector<int>(3));
}

TEST_CASE("stages have the variables of their sections, and share those that are tied", "[nn][pipeline]") {
  auto const whole = nn::graph::whole_of<Net, Cpu>();
  auto const ends  = nn::graph::cut_of(whole.g, {}, 4).ends;
  auto names       = std::map<std::string, int>{};
  for (int stage = 0; stage < 4; ++stage) {
    auto const schedule = pipelines::schedule_of<ZeroBubbleH1<4>>(stage, 4);
    auto const mine     = nn::graph::stage_variables<Net>(whole, ends, schedule);
    for (auto const& v : mine.shapes) ++names[v.name];
  }
  CHECK(names.size() == nn::plan_of<Net>.variables.size());
  for (auto const& [name, number] : names) CHECK(number == (name == "words/embeddings" ? 2 : 1));
}

TEST_CASE("sums of a variable that stages share come to its owner in parts", "[nn][pipeline]") {
  using namespace nn::graph;
  for (auto const size : {std::size_t{5}, tie_part, tie_part + 1, 2 * tie_part, 3 * tie_part + 7}) {
    auto const ties = std::vector{Tie{.variable = 0, .number = 0, .sections = {0, 1, 2}, .owner = 0, .others = {2, 1}}};
    auto const planned = std::vector{PlannedVariable{.name = Name{"table"}, .offset = plan::header, .size = size}};
    auto const numbers = MessageNumbers{};
    auto wrong         = std::vector<int>(3, -1);  // elements, on each stage
    auto received      = std::vector<std::vector<float>>(3);
    auto const results = test::on_ranks<LocalTransport>(3, 1, [&](LocalEndpoint& at, Span<float>) {
      auto const me  = static_cast<std::size_t>(at.rank());
      auto schedule  = pipelines::StageSchedule{.stage    = at.rank(),
                                                .stages   = 3,
                                                .entries  = {},
                                                .sections = {at.rank()},
                                                .stage_of = {0, 1, 2},
                                                .chunk_of = {0, 0, 0}};
      auto messages  = detail::StageMessages<LocalEndpoint>{at, Tag{16}};
      auto values    = std::vector<float>(plan::header + size + plan::trailer);
      auto const all = Gradients{values, planned, {}};
      for (std::size_t j = 0; j < size; ++j) all[0][j] = static_cast<float>(1'000'000 * me + j);
      add_ties(ties, all, schedule, numbers, messages, received[me]);
      share_ties(ties, all, schedule, numbers, messages);
      wrong[me] = 0;
      for (std::size_t j = 0; j < size; ++j) wrong[me] += all[0][j] != static_cast<float>(3'000'000 + 3 * j) ? 1 : 0;
    });
    for (auto const& result : results) CHECK(result.error == "");
    CHECK(wrong == std::vector<int>(3));
    CHECK(received[0].size() == std::min(size, 2 * tie_part));
    CHECK(received[1].size() + received[2].size() == 0);
  }
}

namespace {

struct Word : Field<int, 1> {};
/// A table of many words that is looked up, then layers that multiply: the table takes time, but has no products.
struct Lookup : nn::Graph<Word> {
  nn::Embedding<1'000, wide, nn::DenseGradient> table{"words"};
  nn::Dense<20> a{"a"}, b{"b"}, c{"c"}, d{"d"};

  constexpr auto operator()(auto word) const { return nn::outputs<Next>(d(c(b(a(nn::reshape<wide>(table(word))))))); }
};

}  // namespace

TEST_CASE("the time of a section counts what updates move", "[nn][pipeline]") {
  auto const whole = nn::graph::whole_of<Lookup, Cpu>();
  CHECK(nn::graph::time_of(whole.g.calls[0]) == 8 * 6'000 + 1);  // looked up
  CHECK(nn::graph::time_of(whole.g.calls[1]) == 1);              // reshaped
  CHECK(nn::graph::time_of(whole.g.calls[2]) == 120 + 12 * (120 + 20) + 1);
  CHECK(nn::graph::cut_of(whole.g, {}, 2).ends == std::vector{2, 6});  // the table by itself
}

TEST_CASE("a network is cut where sections take equally long, and each has variables", "[nn][pipeline]") {
  auto const whole = nn::graph::whole_of<Net, Cpu>();
  for (int sections = 1; sections <= 8; ++sections) {
    auto const cut = nn::graph::cut_of(whole.g, {}, sections);
    REQUIRE(cut.flaw == nn::graph::CutFlaw::none);
    REQUIRE(cut.ends.size() == static_cast<std::size_t>(sections));
    CHECK(cut.ends.back() == static_cast<int>(whole.g.calls.size()));
    auto begin = 0;
    for (auto const end : cut.ends) {
      auto uses = 0;
      for (auto c = begin; c < end; ++c) uses += whole.g.calls[static_cast<std::size_t>(c)].uses;
      CHECK(uses > 0);
      begin = end;
    }
  }
  CHECK(nn::graph::cut_of(whole.g, {}, 11).flaw == nn::graph::CutFlaw::no_variables);
  CHECK(nn::graph::cut_of(whole.g, {}, 1000).flaw == nn::graph::CutFlaw::few_calls);
}
