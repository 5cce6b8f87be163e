// SPDX-License-Identifier: Apache-2.0
//
// Refuses functions of callbacks that fit would never call: those with a similar name, or with other parameters.
#pragma once

#include <chorale/trainer/history.hpp>

#include <type_traits>

namespace chorale::detail {

/// Names of functions that fit does not call, and that are close to those it calls: of Keras and PyTorch Lightning, in
/// other forms of the verb, and in other spellings.
struct NearNames {
  int on_fit_begins, on_fit_start, on_train_begin, on_train_start, onFitBegin, onTrainBegin, on_resumed, on_fit_resume,
      onResume, on_epoch_begins, on_epoch_start, on_epoch_started, on_train_epoch_start, onEpochBegin, onEpochStart,
      on_step_ends, on_step_ended, on_batch_end, on_train_batch_end, on_train_step_end, onStepEnd, onBatchEnd,
      on_epoch_ends, on_epoch_ended, on_epoch_finish, on_epoch_finished, on_train_epoch_end, on_validation_end,
      onEpochEnd, on_fit_ends, on_fit_ended, on_train_end, onFitEnd, onTrainEnd, on_step_begin, on_step_start,
      on_batch_begin, on_train_batch_begin;
};

/// The names of the functions that fit calls.
struct CallbackNames {
  int on_fit_begin, on_resume, on_epoch_begin, on_step_end, on_epoch_end, on_fit_end;
};

/// Derives from C and from a class with members of these names. If C has a function of such a name, then
/// `&Beside<C, Names>::name` is ambiguous, whatever the parameters: `&C::name` fails for templates and overloads.
template <class C, class Names> struct Beside : C, Names {};
template <class C, class Names> requires std::is_final_v<C> struct Beside<C, Names> : Names {
};  // a final class is not checked

/// Refuses a callback that has a function whose name is close to one that fit calls.
template <class C> struct HasNoNearName {
  using All = Beside<std::remove_const_t<C>, NearNames>;

  static_assert(
      requires { &All::on_fit_begins; },
      "chorale: a callback has on_fit_begins, which fit never calls. Write on_fit_begin(trainer). fit also "
      "calls on_resume, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::on_fit_start; },
      "chorale: a callback has on_fit_start, which fit never calls. Write on_fit_begin(trainer). fit also "
      "calls on_resume, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::on_train_begin; },
      "chorale: a callback has on_train_begin, which fit never calls. Write on_fit_begin(trainer). fit also "
      "calls on_resume, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::on_train_start; },
      "chorale: a callback has on_train_start, which fit never calls. Write on_fit_begin(trainer). fit also "
      "calls on_resume, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::onFitBegin; },
      "chorale: a callback has onFitBegin, which fit never calls. Write on_fit_begin(trainer). fit also "
      "calls on_resume, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::onTrainBegin; },
      "chorale: a callback has onTrainBegin, which fit never calls. Write on_fit_begin(trainer). fit also "
      "calls on_resume, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");

  static_assert(
      requires { &All::on_resumed; },
      "chorale: a callback has on_resumed, which fit never calls. Write on_resume(trainer). fit also calls "
      "on_fit_begin, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::on_fit_resume; },
      "chorale: a callback has on_fit_resume, which fit never calls. Write on_resume(trainer). fit also "
      "calls on_fit_begin, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::onResume; },
      "chorale: a callback has onResume, which fit never calls. Write on_resume(trainer). fit also calls "
      "on_fit_begin, on_epoch_begin, on_step_end, on_epoch_end and on_fit_end. See docs/48-observe.md");

  static_assert(
      requires { &All::on_epoch_begins; },
      "chorale: a callback has on_epoch_begins, which fit never calls. Write on_epoch_begin(trainer, "
      "epoch). fit also calls on_fit_begin, on_resume, on_step_end, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_start; },
      "chorale: a callback has on_epoch_start, which fit never calls. Write on_epoch_begin(trainer, epoch). "
      "fit also calls on_fit_begin, on_resume, on_step_end, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_started; },
      "chorale: a callback has on_epoch_started, which fit never calls. Write on_epoch_begin(trainer, "
      "epoch). fit also calls on_fit_begin, on_resume, on_step_end, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_train_epoch_start; },
      "chorale: a callback has on_train_epoch_start, which fit never calls. Write on_epoch_begin(trainer, "
      "epoch). fit also calls on_fit_begin, on_resume, on_step_end, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::onEpochBegin; },
      "chorale: a callback has onEpochBegin, which fit never calls. Write on_epoch_begin(trainer, epoch). "
      "fit also calls on_fit_begin, on_resume, on_step_end, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::onEpochStart; },
      "chorale: a callback has onEpochStart, which fit never calls. Write on_epoch_begin(trainer, epoch). "
      "fit also calls on_fit_begin, on_resume, on_step_end, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");

  static_assert(
      requires { &All::on_step_ends; },
      "chorale: a callback has on_step_ends, which fit never calls. Write on_step_end(trainer, end). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_step_ended; },
      "chorale: a callback has on_step_ended, which fit never calls. Write on_step_end(trainer, end). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_batch_end; },
      "chorale: a callback has on_batch_end, which fit never calls. Write on_step_end(trainer, end). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_train_batch_end; },
      "chorale: a callback has on_train_batch_end, which fit never calls. Write on_step_end(trainer, end). "
      "fit also calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_train_step_end; },
      "chorale: a callback has on_train_step_end, which fit never calls. Write on_step_end(trainer, end). "
      "fit also calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::onStepEnd; },
      "chorale: a callback has onStepEnd, which fit never calls. Write on_step_end(trainer, end). fit also "
      "calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See docs/48-observe.md");
  static_assert(
      requires { &All::onBatchEnd; },
      "chorale: a callback has onBatchEnd, which fit never calls. Write on_step_end(trainer, end). fit also "
      "calls on_fit_begin, on_resume, on_epoch_begin, on_epoch_end and on_fit_end. See docs/48-observe.md");

  static_assert(
      requires { &All::on_epoch_ends; },
      "chorale: a callback has on_epoch_ends, which fit never calls. Write on_epoch_end(trainer, epoch, "
      "done). fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_ended; },
      "chorale: a callback has on_epoch_ended, which fit never calls. Write on_epoch_end(trainer, epoch, "
      "done). fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_finish; },
      "chorale: a callback has on_epoch_finish, which fit never calls. Write on_epoch_end(trainer, epoch, "
      "done). fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_finished; },
      "chorale: a callback has on_epoch_finished, which fit never calls. Write on_epoch_end(trainer, epoch, "
      "done). fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_train_epoch_end; },
      "chorale: a callback has on_train_epoch_end, which fit never calls. Write on_epoch_end(trainer, "
      "epoch, done). fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. "
      "See docs/48-observe.md");
  static_assert(
      requires { &All::on_validation_end; },
      "chorale: a callback has on_validation_end, which fit never calls. Write on_epoch_end(trainer, epoch, "
      "done). fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::onEpochEnd; },
      "chorale: a callback has onEpochEnd, which fit never calls. Write on_epoch_end(trainer, epoch, done). "
      "fit also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_fit_end. See "
      "docs/48-observe.md");

  static_assert(
      requires { &All::on_fit_ends; },
      "chorale: a callback has on_fit_ends, which fit never calls. Write on_fit_end(trainer, history). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_epoch_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_fit_ended; },
      "chorale: a callback has on_fit_ended, which fit never calls. Write on_fit_end(trainer, history). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_epoch_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::on_train_end; },
      "chorale: a callback has on_train_end, which fit never calls. Write on_fit_end(trainer, history). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_epoch_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::onFitEnd; },
      "chorale: a callback has onFitEnd, which fit never calls. Write on_fit_end(trainer, history). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_epoch_end. See "
      "docs/48-observe.md");
  static_assert(
      requires { &All::onTrainEnd; },
      "chorale: a callback has onTrainEnd, which fit never calls. Write on_fit_end(trainer, history). fit "
      "also calls on_fit_begin, on_resume, on_epoch_begin, on_step_end and on_epoch_end. See "
      "docs/48-observe.md");

  static_assert(
      requires { &All::on_step_begin; },
      "chorale: a callback has on_step_begin, and fit calls nothing before a step. Write "
      "on_step_end(trainer, end) or on_epoch_begin(trainer, epoch). See docs/48-observe.md");
  static_assert(
      requires { &All::on_step_start; },
      "chorale: a callback has on_step_start, and fit calls nothing before a step. Write "
      "on_step_end(trainer, end) or on_epoch_begin(trainer, epoch). See docs/48-observe.md");
  static_assert(
      requires { &All::on_batch_begin; },
      "chorale: a callback has on_batch_begin, and fit calls nothing before a step. Write "
      "on_step_end(trainer, end) or on_epoch_begin(trainer, epoch). See docs/48-observe.md");
  static_assert(
      requires { &All::on_train_batch_begin; },
      "chorale: a callback has on_train_batch_begin, and fit calls nothing before a step. Write "
      "on_step_end(trainer, end) or on_epoch_begin(trainer, epoch). See docs/48-observe.md");
};

/// Refuses a callback that has a function with the right name which fit cannot call.
///
/// Trainer   const if the callback gets it as const
template <class C, class Trainer> struct CanBeCalled {
  using All = Beside<std::remove_const_t<C>, CallbackNames>;

  static_assert(
      requires { &All::on_fit_begin; } || requires(C& c, Trainer& trainer) { c.on_fit_begin(trainer); },
      "chorale: a callback has on_fit_begin, but fit cannot call it. Write on_fit_begin(auto& trainer). A "
      "callback with chief_only gets the trainer as const, and one that is const itself needs const "
      "functions. See docs/48-observe.md");
  static_assert(
      requires { &All::on_resume; } || requires(C& c, Trainer& trainer) { c.on_resume(trainer); },
      "chorale: a callback has on_resume, but fit cannot call it. Write on_resume(auto& trainer). A "
      "callback with chief_only gets the trainer as const, and one that is const itself needs const "
      "functions. See docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_begin; } ||
          requires(C& c, Trainer& trainer, int epoch) { c.on_epoch_begin(trainer, epoch); },
      "chorale: a callback has on_epoch_begin, but fit cannot call it. Write on_epoch_begin(auto& trainer, "
      "int epoch). A callback with chief_only gets the trainer as const, and one that is const itself needs "
      "const functions. See docs/48-observe.md");
  static_assert(
      requires { &All::on_step_end; } ||
          requires(C& c, Trainer& trainer, StepEnd const& end) { c.on_step_end(trainer, end); },
      "chorale: a callback has on_step_end, but fit cannot call it. Write on_step_end(auto& trainer, "
      "StepEnd const& end). A callback with chief_only gets the trainer as const, and one that is const "
      "itself needs const functions. See docs/48-observe.md");
  static_assert(
      requires { &All::on_epoch_end; } ||
          requires(C& c, Trainer& trainer, int epoch, Epoch& done) { c.on_epoch_end(trainer, epoch, done); },
      "chorale: a callback has on_epoch_end, but fit cannot call it. Write on_epoch_end(auto& trainer, int "
      "epoch, Epoch& done). A callback with chief_only gets the trainer as const, and one that is const "
      "itself needs const functions. See docs/48-observe.md");
  static_assert(
      requires { &All::on_fit_end; } ||
          requires(C& c, Trainer& trainer, History const& history) { c.on_fit_end(trainer, history); },
      "chorale: a callback has on_fit_end, but fit cannot call it. Write on_fit_end(auto& trainer, History "
      "const& history). A callback with chief_only gets the trainer as const, and one that is const itself "
      "needs const functions. See docs/48-observe.md");
};

}  // namespace chorale::detail
