// SPDX-License-Identifier: Apache-2.0
//
// A trainer with its data, whatever the types of both: what is done with it is compiled once.
#pragma once

#include "test/support/folder.hpp"

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/trainer/trainer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::test {

/// A callback that is told of each update and of each epoch.
struct Watch {
  std::function<void(StepEnd const&)> on_step = [](StepEnd const&) {};
  std::function<void(int, Epoch&)> on_epoch   = [](int, Epoch&) {};

  void on_step_end(auto&, StepEnd const& end) const { on_step(end); }
  void on_epoch_end(auto&, int epoch, Epoch& done) const { on_epoch(epoch, done); }
};

class AnyTrainer {
 public:
  /// make   returns the trainer, which stays where it is
  /// begin  what is done with it first, where its type counts
  template <class Make, class Data, class Begin>
  AnyTrainer(Make const& make, Data data, Begin const& begin)
      : AnyTrainer{std::make_unique<Of<decltype(make()), Data>>(make, std::move(data)), begin} {}
  template <class Make, class Data>
  AnyTrainer(Make const& make, Data data) : AnyTrainer{make, std::move(data), [](auto&) {}} {}

  History fit(FitOptions const& options, Watch const& watch = {}) { return held_->fit(options, watch); }
  Scores evaluate() { return held_->evaluate(); }
  Predictions predict() { return held_->predict(); }
  void save(std::filesystem::path const& file) { held_->save(file); }
  void load(std::filesystem::path const& file) { held_->load(file); }
  void stop() { held_->stop(); }

 private:
  struct Held {
    virtual ~Held()                                      = default;
    virtual History fit(FitOptions const&, Watch const&) = 0;
    virtual Scores evaluate()                            = 0;
    virtual Predictions predict()                        = 0;
    virtual void save(std::filesystem::path const&)      = 0;
    virtual void load(std::filesystem::path const&)      = 0;
    virtual void stop()                                  = 0;
  };
  template <class Trainer, class Data> struct Of final : Held {
    Trainer trainer;
    Data data;

    Of(auto const& make, Data from) : trainer(make()), data{std::move(from)} {}

    History fit(FitOptions const& options, Watch const& watch) override { return trainer.fit(data, options, watch); }
    Scores evaluate() override { return trainer.evaluate(data); }
    Predictions predict() override { return trainer.predict(data); }
    void save(std::filesystem::path const& file) override { trainer.save(file); }
    void load(std::filesystem::path const& file) override { trainer.load(file); }
    void stop() override { trainer.stop(); }
  };

  template <class Made, class Begin> AnyTrainer(std::unique_ptr<Made> made, Begin const& begin) {
    begin(made->trainer);
    held_ = std::move(made);
  }

  std::unique_ptr<Held> held_;
};

/// What training ends with, as one network: its variables, what was counted, and outputs of all rows.
struct Learned {
  std::vector<float> values{};
  std::vector<double> scores{};
  std::vector<float> outputs{};

  friend bool operator==(Learned const&, Learned const&) = default;
};

/// The largest difference of any number, relative to the largest one of its kind; infinite if there are not as many.
inline double difference(Learned const& a, Learned const& b) {
  auto worst         = 0.0;
  auto const compare = [&](auto const& x, auto const& y) {
    auto apart = x.size() == y.size() ? 0.0 : std::numeric_limits<double>::infinity(), largest = 1e-30;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      auto const d = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      apart        = d <= apart ? apart : std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
      largest      = std::max(largest, std::abs(static_cast<double>(y[i])));
    }
    worst = std::max(worst, apart / largest);
  };
  compare(a.values, b.values);
  compare(a.scores, b.scores);
  compare(a.outputs, b.outputs);
  return worst;
}

/// All numbers of a file of weights, in the order of the file.
inline std::vector<float> numbers_in(std::filesystem::path const& path) {
  auto const file = SafetensorsFile::read(path);
  auto all        = std::vector<float>{};
  for (auto const& tensor : file.tensors()) {
    auto const* const x = reinterpret_cast<float const*>(tensor.bytes.data());
    all.insert(all.end(), x, x + tensor.bytes.size() / sizeof(float));
  }
  return all;
}
inline std::vector<float> values_of(AnyTrainer& trainer) {
  auto const folder = Folder{};
  trainer.save(folder / "weights");
  return numbers_in(folder / "weights");
}

inline void add(std::vector<double>& to, Scores const& scores) {
  to.push_back(static_cast<double>(scores.rows()));
  to.push_back(scores.loss());
  for (std::size_t i = 0; i < scores.metrics(); ++i) to.push_back(scores.metric(i));
}

/// Trains, and reads the variables of all replicas from a file, as one network; with loss and metrics of each epoch.
inline Learned fitted(AnyTrainer& trainer, FitOptions const& options, Watch const& watch = {}) {
  auto all = Learned{};
  for (auto const& epoch : trainer.fit(options, watch)) add(all.scores, epoch.scores);
  all.values = values_of(trainer);
  return all;
}

}  // namespace chorale::test
