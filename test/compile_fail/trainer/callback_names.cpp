// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
using Trains     = decltype(Trainer{model, OneDeviceStrategy{}});

/// What fit does with its callbacks first.
template <class Prints> void begin(Trains& trainer, Prints prints) { CallbackList<Trains, Prints>{trainer, prints}; }
struct AtTheEnd {
  void on_epoch_end(auto&, int, Epoch&) const {}
};

// expect: chorale: a callback has on_fit_begins, which fit never calls. Write on_fit_begin(trainer)
struct Prints : AtTheEnd {
  void on_fit_begins(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_fit_start, which fit never calls. Write on_fit_begin(trainer)
struct Prints : AtTheEnd {
  void on_fit_start(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_begin, which fit never calls. Write on_fit_begin(trainer)
struct Prints : AtTheEnd {
  void on_train_begin(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_start, which fit never calls. Write on_fit_begin(trainer)
struct Prints : AtTheEnd {
  void on_train_start(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onFitBegin, which fit never calls. Write on_fit_begin(trainer)
struct Prints : AtTheEnd {
  void onFitBegin(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onTrainBegin, which fit never calls. Write on_fit_begin(trainer)
struct Prints : AtTheEnd {
  void onTrainBegin(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_resumed, which fit never calls. Write on_resume(trainer)
struct Prints : AtTheEnd {
  void on_resumed(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_fit_resume, which fit never calls. Write on_resume(trainer)
struct Prints : AtTheEnd {
  void on_fit_resume(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onResume, which fit never calls. Write on_resume(trainer)
struct Prints : AtTheEnd {
  void onResume(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_begins, which fit never calls. Write on_epoch_begin(trainer, epoch)
struct Prints : AtTheEnd {
  void on_epoch_begins(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_started, which fit never calls. Write on_epoch_begin(trainer, epoch)
struct Prints : AtTheEnd {
  void on_epoch_started(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_epoch_start, which fit never calls. Write on_epoch_begin(trainer, epoch)
struct Prints : AtTheEnd {
  void on_train_epoch_start(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onEpochBegin, which fit never calls. Write on_epoch_begin(trainer, epoch)
struct Prints : AtTheEnd {
  void onEpochBegin(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onEpochStart, which fit never calls. Write on_epoch_begin(trainer, epoch)
struct Prints : AtTheEnd {
  void onEpochStart(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_step_ends, which fit never calls. Write on_step_end(trainer, end)
struct Prints : AtTheEnd {
  void on_step_ends(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_step_ended, which fit never calls. Write on_step_end(trainer, end)
struct Prints : AtTheEnd {
  void on_step_ended(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_batch_end, which fit never calls. Write on_step_end(trainer, end)
struct Prints : AtTheEnd {
  void on_batch_end(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_step_end, which fit never calls. Write on_step_end(trainer, end)
struct Prints : AtTheEnd {
  void on_train_step_end(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onStepEnd, which fit never calls. Write on_step_end(trainer, end)
struct Prints : AtTheEnd {
  void onStepEnd(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onBatchEnd, which fit never calls. Write on_step_end(trainer, end)
struct Prints : AtTheEnd {
  void onBatchEnd(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_ends, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void on_epoch_ends(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_ended, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void on_epoch_ended(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_finish, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void on_epoch_finish(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_finished, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void on_epoch_finished(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_epoch_end, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void on_train_epoch_end(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_validation_end, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void on_validation_end(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onEpochEnd, which fit never calls. Write on_epoch_end(trainer, epoch, done)
struct Prints : AtTheEnd {
  void onEpochEnd(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_fit_ends, which fit never calls. Write on_fit_end(trainer, history)
struct Prints : AtTheEnd {
  void on_fit_ends(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_fit_ended, which fit never calls. Write on_fit_end(trainer, history)
struct Prints : AtTheEnd {
  void on_fit_ended(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_end, which fit never calls. Write on_fit_end(trainer, history)
struct Prints : AtTheEnd {
  void on_train_end(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onFitEnd, which fit never calls. Write on_fit_end(trainer, history)
struct Prints : AtTheEnd {
  void onFitEnd(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has onTrainEnd, which fit never calls. Write on_fit_end(trainer, history)
struct Prints : AtTheEnd {
  void onTrainEnd(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_step_begin, and fit calls nothing before a step
struct Prints : AtTheEnd {
  void on_step_begin(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_step_start, and fit calls nothing before a step
struct Prints : AtTheEnd {
  void on_step_start(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_train_batch_begin, and fit calls nothing before a step
struct Prints : AtTheEnd {
  void on_train_batch_begin(auto&&...) {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_fit_begin, but fit cannot call it
struct Prints : AtTheEnd {
  void on_fit_begin() const {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_resume, but fit cannot call it
struct Prints : AtTheEnd {
  void on_resume() const {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_begin, but fit cannot call it
struct Prints : AtTheEnd {
  void on_epoch_begin() const {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_step_end, but fit cannot call it
struct Prints : AtTheEnd {
  void on_step_end() const {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: a callback has on_epoch_end, but fit cannot call it
struct Prints {
  void on_epoch_end() const {}
  void on_fit_end(auto&, History const&) const {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: compiles
struct Prints : AtTheEnd {
  void on_fit_begin(auto&) const {}
  void on_resume(auto&) const {}
  void on_epoch_begin(auto&, int) const {}
  void on_step_end(auto&, StepEnd const&) const {}
  void on_fit_end(auto&, History const&) const {}
};
void train(Trains& trainer) { begin(trainer, Prints{}); }

// expect: chorale: fit got an argument that is neither a callback nor a sink
struct Prints {};
void train(Trains& trainer) { begin(trainer, Prints{}); }
