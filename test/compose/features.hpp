// SPDX-License-Identifier: Apache-2.0
//
// The features of the table: its rows. Each says what a program does with it under a strategy, and what it ends with.
#pragma once

#include "test/compose/feature_strategies.hpp"
#include "test/support/any_trainer.hpp"

#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/trainer/online.hpp>
#include <chorale/trainer/retarget.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace features {

using namespace chorale;
using chorale::test::AnyTrainer;
using chorale::test::Folder;
using chorale::test::Learned;
using chorale::test::Watch;

struct Numbers : Field<float, 6> {};
struct Ids : Field<int, 2> {};
struct Kind : Field<int, 1> {};
struct Amount : Field<float, 1> {};
struct Importance : Field<float, 1> {};
struct Words : Field<int, -1> {};
struct Tags : Field<int, -1> {};

/// Rows of all fields, and the batches that a network takes of them: five of 12 rows.
struct Data {
  static constexpr std::size_t rows = 60, batch = 12;

  std::vector<float> numbers = drawn(0, 6), amounts = drawn(1, 1), importance = drawn(2, 1);
  std::vector<int> ids = chosen(3, 2, 9), kinds = chosen(4, 1, 3);
  std::vector<std::vector<int>> words, tags;

  /// same_rows   the second half of each batch has the rows of the first one
  explicit Data(bool same_rows) {
    for (std::size_t r = 0; r < rows; ++r) {
      auto const length = 1 + static_cast<int>(Random{5, 5}.below(r, 4));
      auto& row         = words.emplace_back();
      for (int i = 0; i < length; ++i)
        row.push_back(static_cast<int>(Random{5, 6}.below(4 * r + static_cast<std::size_t>(i), 9)));
      tags.push_back(row);
      for (auto& tag : tags.back()) tag %= 3;
    }
    if (!same_rows) return;
    for (std::size_t r = 0; r < rows; ++r) {
      if (r % batch < batch / 2) continue;
      auto const from = r - batch / 2;
      for (std::size_t i = 0; i < 6; ++i) numbers[6 * r + i] = numbers[6 * from + i];
      for (std::size_t i = 0; i < 2; ++i) ids[2 * r + i] = ids[2 * from + i];
      amounts[r] = amounts[from], importance[r] = importance[from], kinds[r] = kinds[from];
      words[r] = words[from], tags[r] = tags[from];
    }
  }

  auto tensors() const { return data::from_tensors(numbers, kinds, 6).batch(batch); }
  auto fields() const { return data::from_fields<Numbers, Kind>(numbers, kinds).batch(batch); }

 private:
  static std::vector<float> drawn(std::uint64_t stream, std::size_t width) {
    auto all = std::vector<float>(rows * width);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = Random{5, stream}.uniform(i, -1, 1);
    return all;
  }
  static std::vector<int> chosen(std::uint64_t stream, std::size_t width, int below) {
    auto all = std::vector<int>(rows * width);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<int>(Random{5, stream}.below(i, static_cast<std::uint64_t>(below)));
    return all;
  }
};

inline FitOptions options(int epochs = 1) { return {.epochs = epochs, .show = Show::nothing, .compare_every = 1}; }
inline optim::SGD rule() { return {.learning_rate = 0.05F, .momentum = 0.5F}; }

/// Makes the trainer of a model under a strategy.
template <class S, class M> auto trainer_of(M const& model) {
  return [model] { return Trainer{model, S::make(), S::reduce(), LocalTransport{}, 7}; };
}

/// A column under another reduction.
template <class S, class R> struct By : S {
  static R reduce() { return {}; }
};

/// One of everything that trains: fit, evaluate, predict.
inline Learned all_of(AnyTrainer trainer, bool predicts = true) {
  auto all = chorale::test::fitted(trainer, options());
  chorale::test::add(all.scores, trainer.evaluate());
  if (predicts) all.outputs = trainer.predict().values;
  return all;
}

// --- the network of most rows ---

struct Net : nn::Graph<Numbers> {
  nn::Dense<8> first{"first"}, second{"second"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(last(nn::Tanh{}(second(nn::Tanh{}(first(x)))))); }
};
inline auto net(optim::SGD const& by = rule()) {
  return nn::compile<Net>(loss::SparseCrossEntropy{}, by, metric::Accuracy{});
}
template <class S> AnyTrainer of_net(Data const& data, optim::SGD const& by = rule()) {
  return {trainer_of<S>(net(by)), data.fields()};
}

struct fit {
  template <class S> static Learned learn(Data const& data) {
    auto trainer = of_net<S>(data);
    return chorale::test::fitted(trainer, options());
  }
};
struct evaluate {
  template <class S> static Learned learn(Data const& data) {
    auto trainer = of_net<S>(data);
    auto all     = Learned{};
    chorale::test::add(all.scores, trainer.evaluate());
    trainer.fit(options());
    chorale::test::add(all.scores, trainer.evaluate());
    return all;
  }
};
struct predict {
  template <class S> static Learned learn(Data const& data) {
    auto trainer = of_net<S>(data);
    trainer.fit(options());
    return {.outputs = trainer.predict().values};
  }
};
struct accumulate {  // which does not go with Reproducible
  template <class S> static Learned learn(Data const& data) {
    auto trainer   = of_net<By<S, RingAllReduce>>(data);
    auto two       = options(2);
    two.accumulate = 2;  // and one batch at the end of an epoch
    return chorale::test::fitted(trainer, two);
  }
};
struct steps_per_epoch {
  template <class S> static Learned learn(Data const& data) {
    auto trainer        = of_net<S>(data);
    auto two            = options(2);
    two.steps_per_epoch = 3;
    return chorale::test::fitted(trainer, two);
  }
};
struct clip {
  template <class S> static Learned learn(Data const& data) {
    auto by            = rule();
    by.global_clipnorm = 0.05F;
    auto trainer       = of_net<S>(data, by);
    return chorale::test::fitted(trainer, options());
  }
};
struct schedule {
  template <class S> static Learned learn(Data const& data) {
    auto by          = rule();
    by.learning_rate = optim::LinearWarmup{0, 0.2F, 4};
    auto trainer     = of_net<S>(data, by);
    return chorale::test::fitted(trainer, options());
  }
};
struct set_rate {
  template <class S> static Learned learn(Data const& data) {
    auto trainer = AnyTrainer{trainer_of<S>(net()), data.fields(), [](auto& of) { of.set_learning_rate(0.01F); }};
    return chorale::test::fitted(trainer, options());
  }
};
struct callbacks {
  template <class S> static Learned learn(Data const& data) {
    auto trainer       = of_net<S>(data);
    auto all           = Learned{};
    auto steps         = std::vector<double>{};
    auto const watch   = Watch{.on_step = [&](StepEnd const& end) { steps.push_back(static_cast<double>(end.step)); },
                               .on_epoch =
                                 [&](int epoch, Epoch& done) {
                                   done.validation = trainer.evaluate();
                                   if (epoch == 1) trainer.stop();
                                 }};
    auto const history = trainer.fit(options(5), watch);
    for (auto const& epoch : history) {
      chorale::test::add(all.scores, epoch.scores);
      chorale::test::add(all.scores, *epoch.validation);
    }
    all.scores.insert(all.scores.end(), steps.begin(), steps.end());
    all.values = chorale::test::values_of(trainer);
    return all;
  }
};
struct early_stopping {
  template <class S> static Learned learn(Data const& data) {
    auto trainer = trainer_of<S>(net())();
    auto early   = EarlyStopping{.min_delta = 10};
    auto all     = Learned{};
    for (auto const& epoch : trainer.fit(data.fields(), options(5), validate_on(data.fields()), early)) {
      chorale::test::add(all.scores, epoch.scores);
      chorale::test::add(all.scores, *epoch.validation);
    }
    return all;
  }
};
struct resume {
  template <class S> static Learned learn(Data const& data) {
    auto const folder  = Folder{};
    auto saving        = options(1);
    saving.checkpoints = {.folder = folder.path, .log = {}};
    of_net<S>(data).fit(saving);
    saving.epochs = 2;
    auto resumed  = of_net<S>(data);
    auto all      = Learned{};
    if (resumed.fit(saving).size() != 1) throw Error{"a run did not go on from its checkpoint"};
    all.values = chorale::test::values_of(resumed);
    return all;
  }
};
/// A checkpoint of one device goes on under the strategy.
struct resume_of_one {
  template <class S> static Learned learn(Data const& data) {
    auto const folder  = Folder{};
    auto saving        = options(1);
    saving.checkpoints = {.folder = folder.path, .log = {}};
    of_net<columns::one_device>(data).fit(saving);
    saving.epochs = 2;
    auto resumed  = of_net<S>(data);
    if (resumed.fit(saving).size() != 1) throw Error{"a run did not go on from its checkpoint"};
    return {.values = chorale::test::values_of(resumed)};
  }
};
struct weights {
  template <class S> static Learned learn(Data const& data) {
    auto const folder = Folder{};
    auto one          = of_net<S>(data);
    one.fit(options());
    one.save(folder / "weights");
    auto two = of_net<S>(data);
    two.load(folder / "weights");
    return chorale::test::fitted(two, options());
  }
};
struct load_checkpoint {
  template <class S> static Learned learn(Data const& data) {
    auto const folder  = Folder{};
    auto saving        = options(1);
    saving.checkpoints = {.folder = folder.path, .log = {}};
    of_net<S>(data).fit(saving);
    auto trainer = AnyTrainer{trainer_of<S>(net()), data.fields(),
                              [&](auto& of) { of.load(*newest_checkpoint(saving.checkpoints)); }};
    return {.outputs = trainer.predict().values};
  }
};
struct retargeted {
  template <class S> static Learned learn(Data const& data) {
    auto first = trainer_of<S>(net())();
    first.fit(data.fields(), options(1), Watch{});
    auto const to_one = [&] {
      return retarget(std::move(first), columns::one_device::make(), columns::one_device::reduce(), LocalTransport{});
    };
    auto second        = AnyTrainer{to_one, data.fields()};
    auto more          = options(2);
    more.initial_epoch = 1;
    return chorale::test::fitted(second, more);
  }
};
struct online {
  template <class S> static Learned learn(Data const& data) {
    auto all     = Learned{};
    auto trainer = AnyTrainer{trainer_of<S>(net()), data.fields(), [&](auto& of) { train(of, data, all); }};
    all.values   = chorale::test::values_of(trainer);
    return all;
  }

 private:
  static void train(auto& trainer, Data const& data, Learned& all) {
    auto here = OnlineTraining{trainer};
    for (std::size_t first = 0; first < Data::rows; first += Data::batch) {
      auto const batch = Rows<Numbers, Kind>{Span<float const>{data.numbers}.subspan(6 * first, 6 * Data::batch),
                                             Span<int const>{data.kinds}.subspan(first, Data::batch)};
      all.scores.push_back(here.train(batch).loss());
    }
  }
};
/// True if each copy has all variables.
template <class S, class T = decltype(S::make())>
constexpr bool keeps_all = !shards_variables<T> && !StrategyTraits<T>::has_stages;

void add_values(Learned& all, auto& copies) {
  auto const body = copies[0].net.variables().body();
  all.values.insert(all.values.end(), body.begin(), body.end());
}

struct own_loop {
  template <class S> static Learned learn(Data const& data) {
    auto live   = Live{S::make(), S::reduce(), LocalTransport{}};
    auto copies = live.create(net(), 7);
    auto all    = Learned{};
    for (auto& batch : live.distribute(data.fields())) {
      PerReplica<Sum<float>> losses = live.run(
          [&](auto& replica, auto& copy, auto& share) {
            auto [loss, gradients] = replica.value_and_gradient(copy, share);
            live.update(replica, copy, gradients);
            return loss;
          },
          copies, batch);
      all.scores.push_back(live.reduce(losses).mean());
    }
    live.finish(copies);
    if constexpr (keeps_all<S>) add_values(all, copies);
    return all;
  }
};
/// Two models in one step, of which the second learns what the first one gives.
struct two_models {
  template <class S> static Learned learn(Data const& data) {
    auto live    = Live{S::make(), S::reduce(), LocalTransport{}};
    auto firsts  = live.create(net(), 7);
    auto seconds = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}), 8);
    auto all     = Learned{};
    for (auto& batch : live.distribute(data.fields())) {
      PerReplica<Sum<float>> losses = live.run(
          [&](auto& replica, auto& first, auto& second, auto& share) {
            auto [a, of_first] = replica.value_and_gradient(first, share);
            live.update(replica, first, of_first);
            auto [b, of_second] = replica.value_and_gradient(second, share);
            live.update(replica, second, of_second);
            return b;
          },
          firsts, seconds, batch);
      all.scores.push_back(live.reduce(losses).mean());
    }
    live.finish(firsts);
    live.finish(seconds);
    if constexpr (keeps_all<S>) add_values(all, firsts), add_values(all, seconds);
    return all;
  }
};

// --- other networks, losses, metrics and rules ---

struct Chain : nn::Sequential<nn::Input<6>, nn::Dense<8>, nn::Tanh, nn::Dense<8>, nn::Tanh, nn::Dense<3>> {};

struct sequential {
  template <class S> static Learned learn(Data const& data) {
    return all_of(
        {trainer_of<S>(nn::compile<Chain>(loss::SparseCrossEntropy{}, rule(), metric::Accuracy{})), data.tensors()});
  }
};
struct in_bf16 {
  static constexpr bool in_halves = true;

  template <class S> static Learned learn(Data const& data) {
    return all_of(
        {trainer_of<S>(nn::compile<Chain, nn::Precision<bf16>>(loss::SparseCrossEntropy{}, rule())), data.tensors()});
  }
};
struct loss_scaled {
  static constexpr bool in_halves = true;

  template <class S> static Learned learn(Data const& data) {
    return all_of({trainer_of<S>(nn::compile<Chain, nn::Precision<fp16>>(loss::SparseCrossEntropy{},
                                                                         optim::LossScaled{rule(), 1'024, 2})),
                   data.tensors()});
  }
};
template <class S, class O> Learned learned_by(Data const& data, O const& optimizer) {
  return all_of({trainer_of<S>(nn::compile<Net>(loss::SparseCrossEntropy{}, optimizer)), data.fields()});
}
struct adam {
  template <class S> static Learned learn(Data const& data) {
    return learned_by<S>(data, optim::Adam{.global_clipnorm = 0.5F});
  }
};
struct grouped {
  template <class S> static Learned learn(Data const& data) {
    return learned_by<S>(
        data, optim::Grouped{rule(), {optim::frozen("second/*"), {.names = "*/bias", .learning_rate = 0.5F}}});
  }
};
struct averaged {
  template <class S> static Learned learn(Data const& data) {
    return all_of(
        {trainer_of<S>(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Averaged{rule(), 0.9F})), data.fields()});
  }
};
template <class Norm> struct Normed : nn::Graph<Numbers> {
  nn::Dense<8> first{"first"};
  Norm norm{"norm"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(last(nn::Tanh{}(norm(first(x))))); }
};
template <class S, class N> Learned learned_of(Data const& data) {
  return all_of({trainer_of<S>(nn::compile<N>(loss::SparseCrossEntropy{}, rule())), data.fields()});
}
struct batch_norm {
  static constexpr bool same_rows = true;  // where replicas look at their own rows
  template <class S> static Learned learn(Data const& data) { return learned_of<S, Normed<nn::BatchNorm<>>>(data); }
};
struct sync_batch_norm {  // which does not go with Reproducible
  template <class S> static Learned learn(Data const& data) {
    return learned_of<By<S, RingAllReduce>, Normed<nn::SyncBatchNorm<>>>(data);
  }
};
struct WithDropout : nn::Graph<Numbers> {
  nn::Dense<8> first{"first"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(last(nn::Dropout<30>{}(nn::Tanh{}(first(x))))); }
};
struct dropout {
  template <class S> static Learned learn(Data const& data) { return learned_of<S, WithDropout>(data); }
};
struct WithRecompute : nn::Graph<Numbers> {
  nn::Recompute<nn::Block<nn::Dense<8>, nn::Tanh>> first;
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(last(first(x))); }
};
struct recompute {
  template <class S> static Learned learn(Data const& data) { return learned_of<S, WithRecompute>(data); }
};
struct TwoOutputs : nn::Graph<Numbers> {
  nn::Dense<8> first{"first"};
  nn::Dense<3> kind{"kind"};
  nn::Dense<1> amount{"amount"};
  constexpr auto operator()(auto x) const {
    auto const shared = nn::Tanh{}(first(x));
    return nn::outputs<Kind, Amount>(kind(shared), amount(shared));
  }
};
struct outputs {
  template <class S> static Learned learn(Data const& data) {
    return all_of(
        {trainer_of<S>(nn::compile<TwoOutputs>(
             nn::of<Kind>(loss::SparseCrossEntropy{}) + 0.5F * nn::of<Amount>(loss::MeanSquaredError{}), rule(),
             nn::of<Kind>(metric::Accuracy{}))),
         data::from_fields<Numbers, Kind, Amount>(data.numbers, data.kinds, data.amounts).batch(Data::batch)});
  }
};
struct row_weights {
  template <class S> static Learned learn(Data const& data) {
    return all_of(
        {trainer_of<S>(nn::compile<Net>(nn::of<Kind>(loss::SparseCrossEntropy{}).weighted_by(Importance{}), rule())),
         data::from_fields<Numbers, Kind, Importance>(data.numbers, data.kinds, data.importance).batch(Data::batch)});
  }
};
struct class_weights {
  template <class S> static Learned learn(Data const& data) {
    return all_of({trainer_of<S>(nn::compile<Net>(loss::Weighted{loss::SparseCrossEntropy{}, {1, 2, 5}}, rule())),
                   data.fields()});
  }
};
struct state_metric {
  template <class S> static Learned learn(Data const& data) {
    return all_of({trainer_of<S>(nn::compile<Net>(loss::SparseCrossEntropy{}, rule(), metric::ConfusionMatrix<3>{})),
                   data.fields()});
  }
};
struct Reader : nn::Graph<Words> {
  nn::Embedding<9, 6, nn::DenseGradient> words{"words"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(last(nn::GlobalAveragePool1D{}(words(x)))); }
};
struct ragged {
  template <class S> static Learned learn(Data const& data) {
    return all_of({trainer_of<S>(nn::compile<Reader>(loss::SparseCrossEntropy{}, rule())),
                   data::from_fields<Words, Kind>(data.words, data.kinds).batch(Data::batch)});
  }
};
struct Tagger : nn::Graph<Words> {
  nn::Embedding<9, 6, nn::DenseGradient> words{"words"};
  nn::TimeDistributed<nn::Dense<3>> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Tags>(last(words(x))); }
};
struct per_position {
  template <class S> static Learned learn(Data const& data) {
    return all_of({trainer_of<S>(nn::compile<Tagger>(loss::per_position(loss::SparseCrossEntropy{}), rule())),
                   data::from_fields<Words, Tags>(data.words, data.tags).batch(Data::batch)},
                  false);
  }
};
template <class Table> struct WithTable : nn::Graph<Ids> {
  Table table{"table"};
  nn::Dense<8> second{"second"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(last(nn::Tanh{}(second(table(ids))))); }
};
template <class S, class Table> Learned learned_of_table(Data const& data) {
  auto const of    = data::from_fields<Ids, Kind>(data.ids, data.kinds).batch(Data::batch);
  auto const model = [](auto const* table) {
    return nn::compile<WithTable<std::remove_cvref_t<decltype(*table)>>>(loss::SparseCrossEntropy{}, rule());
  };
  return all_of({trainer_of<S>(model(static_cast<Table const*>(nullptr))), of});
}
struct table {
  template <class S> static Learned learn(Data const& data) {
    return learned_of_table<S, nn::EmbeddingBag<9, 6>>(data);
  }
};
struct dense_table {
  template <class S> static Learned learn(Data const& data) {
    return learned_of_table<S, nn::EmbeddingBag<9, 6, nn::Bag::mean, nn::DenseGradient>>(data);
  }
};

/// A whole network under one device, and parts of it under others, from the same weights.
template <class S, template <class> class N, template <class> class A, class From>
Learned learned_in_parts(From const& from) {
  auto const folder = Folder{};
  auto const whole  = nn::compile<N<A<std::integral_constant<int, 1>>>>(loss::SparseCrossEntropy{}, rule());
  AnyTrainer{trainer_of<columns::one_device>(whole), from}.save(folder / "weights");
  auto const learn = [&](AnyTrainer trainer) {
    trainer.load(folder / "weights");
    return all_of(std::move(trainer));
  };
  if constexpr (std::is_same_v<decltype(S::make()), OneDeviceStrategy<>>) return learn({trainer_of<S>(whole), from});
  else
    return learn(
        {trainer_of<S>(nn::compile<N<A<std::integral_constant<int, 2>>>>(loss::SparseCrossEntropy{}, rule())), from});
}
template <class Parts> using TensorAxis = Axis<"tensor", Parts::value>;
template <class Parts> using DataAxis   = Axis<"data", Parts::value>;

template <class A> struct Split : nn::Graph<Numbers> {
  nn::ColumnDense<A, 8> first{"first"};
  nn::RowDense<A, 6> second{"second"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(last(second(nn::Tanh{}(first(x))))); }
};
struct split {
  template <class S> static Learned learn(Data const& data) {
    return learned_in_parts<S, Split, TensorAxis>(data.fields());
  }
};
template <class A> struct Dealt : nn::Graph<Ids> {
  nn::ShardedEmbeddingBag<A, 9, 6> table{"table"};
  nn::Dense<8> second{"second"};
  nn::Dense<3> last{"last"};
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(last(nn::Tanh{}(second(table(ids))))); }
};
struct dealt {
  template <class S> static Learned learn(Data const& data) {
    return learned_in_parts<S, Dealt, DataAxis>(data::from_fields<Ids, Kind>(data.ids, data.kinds).batch(Data::batch));
  }
};

/// A line through the first two numbers of a row, whose loss and gradients are the program's.
struct custom {
  struct Line {
    static constexpr std::size_t output_width = 1;
    std::vector<float> out{};

    float learn(auto& step, BasicBatch<float, int> const& batch) const {
      auto loss = 0.0F;
      for (std::size_t r = 0; r < batch.rows; ++r) {
        auto const* const x = batch.x.data() + 6 * r;
        auto const e        = step.value(0)[0] * x[0] + step.value(1)[0] - static_cast<float>(batch.y[r]);
        loss += e * e;
        step.gradient(0)[0] += 2 * e * x[0];
        step.gradient(1)[0] += 2 * e;
      }
      return loss;
    }
    Span<float const> predict(Variables const& at, BasicBatch<float, int> const& batch) {
      out.resize(batch.rows);
      for (std::size_t r = 0; r < batch.rows; ++r) out[r] = at[0].value[0] * batch.x[6 * r] + at[1].value[0];
      return out;
    }
  };
  template <class S> static Learned learn(Data const& data) {
    auto const model = custom_model<BasicBatch<float, int>>({{"slope", {1}}, {"offset", {1}}}, Line{}, rule());
    return all_of({trainer_of<S>(model), data.tensors()});
  }
};

}  // namespace features
