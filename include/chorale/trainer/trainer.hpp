// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/weights.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/transport/local.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// What fit shows: a line that moves on a terminal and one line per epoch elsewhere, or nothing.
enum class Show { progress, nothing };

struct FitOptions {
  int epochs        = 1;                                                  // the last one, as in Keras: 12 means 0 to 11
  int initial_epoch = 0;
  Show show         = Show::progress;
  NonFinite on_non_finite = NonFinite::stop;                               // a NaN or an infinity
};

/// What predict returns: one row for each row of the data, in its order.
struct Predictions {
  std::vector<float> values;                                               // (rows, width)
  std::size_t width = 0;

  std::size_t rows() const { return width == 0 ? 0 : values.size() / width; }
  Span<float const> operator[](std::size_t row) const { return Span<float const>{values}.subspan(row * width, width); }
};

namespace detail {

template <class S>
struct DeviceOf {
  using type = DefaultDevice;                                              // S is no strategy: Live says so
};
template <Strategy S>
struct DeviceOf<S> {
  using type = typename S::device;
};

/// What Trainer is when its parts fit together; otherwise an empty class, so that Trainer's sentence is the only error.
template <class M, class S, class R, class T>
class Fitting {
 public:
  explicit Fitting(auto&&...) {}
};

template <class M, class S, class R, class T>
  requires fit_together<S, R, T> && nn::ModelOn<M, typename S::device>
class Fitting<M, S, R, T> {
 public:
  using Batch    = BasicBatch<float, typename M::target>;
  using instance = typename M::template instance<typename S::device>;

  Fitting(M model, S strategy, R reduce, T transport, Seed seed)
      : model_{std::move(model)}, live_{std::move(strategy), std::move(reduce), planned(std::move(transport))},
        copies_{live_.create(model_, seed)}, sums_(copies_.size()) {}

  int num_replicas() const { return live_.num_replicas(); }

  /// Passes over the data and updates the variables after every batch.
  ///
  /// train     a dataset of batches; the last one may be smaller, and need not divide by the replicas
  /// returns   loss, metrics, steps and seconds of each epoch
  /// throws    NumericFault when the loss or a gradient is not finite, unless on_non_finite allows it; BadArgument when
  ///           a batch does not fit the model, or the data is empty; what the dataset throws. The variables are then
  ///           those of the step before
  template <Dataset Data>
  History fit(Data const& train, FitOptions const& options = {}) {
    auto history = History{};
    auto line    = ProgressLine{};
    for (auto& copy : copies_) copy.optimizer.on_non_finite = options.on_non_finite;
    for (int epoch = options.initial_epoch; epoch < options.epochs; ++epoch) {
      if (options.show == Show::progress) line.begin_epoch(epoch + 1, options.epochs, train.size());
      for (auto& copy : copies_) copy.optimizer.now.epoch = epoch;
      history.push_back(run_epoch(train, epoch, options.show == Show::progress ? &line : nullptr));
      auto const shown = show(history.back().scores);
      if (options.show == Show::progress)
        line.end_epoch(Span<MetricValue const>{shown}.first(1 + M::metric_names.size()));
    }
    return history;
  }

  /// Loss and metrics over data: each row counts once, whatever the batches and replicas.
  template <Dataset Data>
  Scores evaluate(Data const& data) {
    auto scores = Scores{M::metric_names};
    auto shares = live_.distribute(data);
    while (auto* share = shares.next()) {
      live_.run([](auto&, instance& copy, Batch& batch, Sums& sums) { copy.evaluate(batch, sums); }, copies_, *share,
                sums_);
      for (auto const& sums : sums_) scores.add(sums);
    }
    return scores;
  }

  /// The outputs for each row of data, in order; targets are not looked at.
  template <Dataset Data>
  Predictions predict(Data const& data) {
    constexpr auto width = M::output::size;
    auto out    = Predictions{.values = {}, .width = width};
    auto shares = live_.distribute(data);
    auto begin  = PerReplica<float*>(copies_.size());
    while (auto* share = shares.next()) {
      auto at = out.values.size();
      for (std::size_t i = 0; i < share->size(); ++i) at += (*share)[i].rows * width;
      auto to = out.values.size();
      out.values.resize(at);
      for (std::size_t i = 0; i < share->size(); to += (*share)[i++].rows * width) begin[i] = out.values.data() + to;
      live_.run([](auto&, instance& copy, Batch& batch, float* target) {
        auto const y = copy.predict(batch);                                // (rows of the share, Output)
        std::copy(y.begin(), y.end(), target);
      }, copies_, *share, begin);
    }
    return out;
  }

  /// Writes the variables as one safetensors file: no trace of replicas, no optimizer state.
  ///
  /// throws    BadFile when the file cannot be written; an old file is then untouched
  void save(std::filesystem::path const& file) const { save_weights(file, copies_[0].net.variables()); }

  /// Reads the variables from a safetensors file into every replica.
  ///
  /// throws    BadFile when the file is damaged, or is not of this network: the first difference is named
  void load(std::filesystem::path const& file) {
    load_weights(file, copies_[0].net.variables());
    auto const& first = copies_[0].net.variables().values;
    for (auto& copy : copies_) {
      auto const values = copy.net.variables().values;
      if (values.data() != first.data()) std::copy(first.begin(), first.end(), values.begin());
    }
  }

  /// One number for each replica of this process; they are equal as long as all copies of all variables are.
  std::vector<std::uint64_t> hashes() const {
    auto all = std::vector<std::uint64_t>{};
    for (auto const& copy : copies_) all.push_back(copy.hash());
    return all;
  }

  PerReplica<instance>& copies() { return copies_; }
  Live<S, R, T>& live() { return live_; }

 private:
  /// The transport, told what ranks must have in common: those that were built from other models refuse each other.
  static T planned(T transport) {
    if constexpr (requires { transport.plan = lines_of(M::plan); })
      if (transport.plan.empty()) transport.plan = lines_of(M::plan);
    return transport;
  }

  using Sums  = std::array<float, plan::header>;
  using Shown = std::array<MetricValue, plan::header>;

  template <class Data>
  Epoch run_epoch(Data const& train, int epoch, ProgressLine* line) {
    auto const start = std::chrono::steady_clock::now();
    auto done        = Epoch{.scores = Scores{M::metric_names}};
    auto const skipped_before = copies_[0].optimizer.skipped;
    auto shares      = live_.distribute(train, epoch);
    while (auto* share = shares.next()) {
      live_.run([this](auto& replica, instance& copy, Batch& batch) { step(replica, copy, batch); }, copies_, *share);
      auto const sums = copies_[0].gradients().values.template first<plan::header>();
      if (std::isfinite(sums[plan::loss_at]) || copies_[0].optimizer.on_non_finite == NonFinite::allow)
        done.scores.add(sums);
      ++done.steps;
      if (line != nullptr) {
        auto const shown = show(done.scores);
        line->update(done.steps, Span<MetricValue const>{shown}.first(1 + M::metric_names.size()));
      }
    }
    CHORALE_EXPECTS(done.steps > 0, "fit got a dataset without a single batch");
    done.skipped       = copies_[0].optimizer.skipped - skipped_before;
    done.learning_rate = copies_[0].optimizer.rate();
    done.seconds       = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return done;
  }

  /// One step of one replica: the strategy says how it ends.
  void step(auto& replica, instance& copy, Batch const& batch) const {
    replica.begin_step(static_cast<std::uint64_t>(copy.optimizer.now.step));
    auto result = [&] {
      if constexpr (ReducesEveryStep<S>) return replica.value_and_gradient_ahead(copy, batch);
      else return replica.value_and_gradient(copy, batch);
    }();
    live_.strategy().update(replica, copy, result.gradients);
  }

  static Shown show(Scores const& scores) {
    auto shown = Shown{};
    shown[0]   = {"loss", scores.loss()};
    for (std::size_t i = 0; i < scores.metrics(); ++i) shown[i + 1] = {scores.name(i), scores.metric(i)};
    return shown;
  }

  M model_;
  Live<S, R, T> live_;
  PerReplica<instance> copies_;
  PerReplica<Sums> sums_;
};

}  // namespace detail

/// Fits one model under one strategy: Trainer<Model, Strategy, Reduce, Transport>.
///
/// Each parameter answers one question, and each can be changed without touching the other three:
///   Model      what is learned            network, loss, optimizer, metrics
///   Strategy   who holds what, who waits  devices, placement of variables, update rule
///   Reduce     how gradients combine      ring, direct, to one
///   Transport  how bytes travel           local
///
/// keeps   after its first step with a number of rows, a step allocates nothing
template <class M, class S, class R, class T>
class Trainer : public detail::Fitting<M, S, R, T> {
 public:
  /// seed    of the variables' first values and of dropout
  Trainer(M model, S strategy, R reduce = {}, T transport = {}, Seed seed = {})
      : detail::Fitting<M, S, R, T>{std::move(model), std::move(strategy), std::move(reduce), std::move(transport),
                                    seed} {
    static_assert(sizeof(Live<S, R, T>) > 0);                              // says its sentence when they do not fit
    static_assert(!Strategy<S> || nn::ModelOn<M, device>,
                  "chorale: the model argument is not a Model. It needs input, output and instantiate(device, seed). "
                  "See nn::compile");
  }

 private:
  using device = typename detail::DeviceOf<S>::type;
};

template <class M, class S>
Trainer(M, S) -> Trainer<M, S, DirectAllReduce, LocalTransport>;

}  // namespace chorale
