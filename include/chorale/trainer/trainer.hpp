// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/weights.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/data_mismatch.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/trainer/training_loop.hpp>
#include <chorale/transport/local.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// What Trainer is when its parts fit together; otherwise an empty class, so that Trainer's sentence is the only error.
template <class M, class S, class R, class T>
class Fitting {
 public:
  explicit Fitting(auto&&...) {}
};

template <class M, class S, class R, class T>
  requires fit_together<S, R, T> && nn::ModelOn<M, typename S::device>
class Fitting<M, S, R, T> : public TrainingLoop<M, S, R, T> {
  using Base = TrainingLoop<M, S, R, T>;
  using Base::copies_, Base::live_, Base::only_serves;

 public:
  using typename Base::Batch, typename Base::instance;
  using Base::Base;

  /// Loss and metrics over data: each row counts once, whatever the batches and replicas. The same in every process.
  ///
  /// keeps   with servers, the rows of a lost worker are missing in rows(); a process that only serves does so until all
  ///         workers have left, and gets no rows
  template <Dataset Data>
  Scores evaluate(Data const& data) {
    return with_same_data([&] { return evaluate_all(data); }, [] { return std::string{"in evaluate"}; });
  }

  /// The outputs for each row of data, in order, in every process; targets are not looked at.
  ///
  /// keeps   with servers, the replicas of each process compute all rows by themselves: no worker waits for another one,
  ///         and a lost one changes nothing. A process that only serves does so until all workers have left, and gets no
  ///         rows
  template <Dataset Data>
  Predictions predict(Data const& data) {
    return with_same_data([&] { return predict_all(data); }, [] { return std::string{"in predict"}; });
  }

  /// Writes the variables as one safetensors file: no trace of replicas, no optimizer state. Only the chief writes.
  ///
  /// file      a symbolic link stays one: the file that it leads to is replaced
  /// throws    BadFile when the file cannot be written, or is a device, a FIFO or a folder; what was there is then
  ///           untouched
  void save(std::filesystem::path const& file) const {
    if (live_.is_chief()) save_weights(file, copies_[0].net.variables());
  }

  /// Reads the variables from a safetensors file into every replica of the job. Only the chief reads.
  ///
  /// throws    BadFile when the file is damaged, or is not of this network: the first difference is named. PeerLost in
  ///           the other processes then
  void load(std::filesystem::path const& file) {
    auto const mine = live_.hold();
    if constexpr (HasServers<S>) {
      load_into_servers(file);
    } else {
      live_.run([&](auto& replica, instance& copy) {
        if (replica.id() == 0) load_weights(file, copy.net.variables());
        if constexpr (shares_variables<S>) replica.barrier();
        else replica.broadcast(copy.net.variables().values);
      }, copies_);
    }
  }

 private:
  template <Dataset Data>
  Scores evaluate_all(Data const& data) {
    auto const mine = live_.hold();
    if (only_serves()) return Scores{M::metric_names};
    auto all    = PerReplica<Totals>(copies_.size());                      // not those of an epoch that may be running
    auto shares = live_.distribute(data);
    while (auto* share = shares.next()) {
      live_.run([](auto&, instance& copy, Batch& batch, Totals& totals) {
        auto sums = std::array<float, plan::header>{};
        copy.evaluate(batch, sums);
        totals += sums;
      }, copies_, *share, all);
    }
    return Scores{M::metric_names, live_.reduce(all)};
  }

  template <Dataset Data>
  Predictions predict_all(Data const& data) {
    constexpr auto width = M::output::size;
    auto const mine      = live_.hold();
    auto out             = Predictions{.values = {}, .width = width};
    if (only_serves()) return out;
    auto const alone = HasServers<S> || live_.is_all_local();             // the replicas here have all rows
    auto shares      = shares_of(data);
    auto counts      = std::vector<std::size_t>(alone ? copies_.size() : static_cast<std::size_t>(live_.num_replicas()));
    auto ranks       = PerReplica<std::size_t>(copies_.size());            // in this process
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
    while (auto* share = shares.next()) {
      auto const before = out.values.size();
      auto sum          = std::size_t{0};
      for (std::size_t rank = 0; rank < counts.size(); ++rank)
        sum += counts[rank] = shares.share_of(static_cast<Rank>(rank)).rows * width;
      out.values.resize(before + sum);
      auto const all = Span<float>{out.values}.subspan(before);            // (rows of the batch, Output)
      live_.run([&](auto& replica, instance& copy, Batch& batch, std::size_t local) {
        auto const y     = copy.predict(batch);                            // (rows of the share, Output)
        auto const first = counts.begin() + (alone ? static_cast<std::ptrdiff_t>(local) : replica.id());
        std::copy(y.begin(), y.end(), all.begin() + std::accumulate(counts.begin(), first, std::ptrdiff_t{0}));
        if constexpr (!HasServers<S>) {
          if (alone) return;
          auto others = std::vector<float>(local == 0 ? 0 : all.size());   // one of this process fills `all`
          replica.all_gather(y, local == 0 ? all : Span<float>{others}, Span<std::size_t const>{counts});
        }
      }, copies_, *share, ranks);
    }
    return out;
  }

  template <class Data>
  auto shares_of(Data const& data) const {
    if constexpr (HasServers<S>) return live_.distribute_here(data);
    else return live_.distribute(data);
  }

  void load_into_servers(std::filesystem::path const& file) {
    if (live_.only_serves()) return;
    auto loaded = PerReplica<Totals>(copies_.size());
    live_.run([&](auto& replica, instance& copy, Totals& totals) {
      if (replica.id() != 0) return;
      load_weights(file, copy.net.variables());
      replica.assign(copy.net.variables());
      totals.sums[0] = 1;
    }, copies_, loaded);
    if (live_.reduce(loaded).sums[0] != 1)                                // all workers have come here
      throw PeerLost{0, "the chief could not load " + file.string() + " into the servers."};
    live_.run([](auto& replica, instance& copy) { replica.pull(copy.net.variables()); }, copies_);
  }
};

}  // namespace detail

/// Fits one model under one strategy: Trainer<Model, Strategy, Reduce, Transport>.
///
/// Each parameter answers one question, and each can be changed without touching the other three:
///   Model      what is learned            network, loss, optimizer, metrics
///   Strategy   who holds what, who waits  devices, placement of variables, update rule
///   Reduce     how gradients combine      direct, ring, trees, 16 bits on the wire, reproducible, ...
///   Transport  how bytes travel           threads, shared memory, TCP, MPI
///
/// keeps   after its first step with a number of rows, a step allocates nothing, but under Reproducible
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
