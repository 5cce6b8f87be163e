// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/trainer/callback_names.hpp>
#include <chorale/trainer/history.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// Numbers of a callback that a checkpoint keeps, so that a resumed run decides like one that was not interrupted.
struct CallbackState {
  std::string name;
  Span<double> numbers;
};

namespace detail {

/// True if only the chief calls callback C. C then gets the trainer as const, so that it cannot call what all processes
/// must call together.
template <class C> inline constexpr bool for_chief_only                                         = false;
template <class C> requires requires { C::chief_only; } inline constexpr bool for_chief_only<C> = C::chief_only;

template <class C, class Trainer> using SeenBy = std::conditional_t<for_chief_only<C>, Trainer const, Trainer>;

/// True if callback C is called before all others at the end of an epoch: Validation, whose scores they read.
template <class C> inline constexpr bool comes_first = requires { requires C::comes_first; };

template <class C> struct NotOptional {
  using type = C;
};
template <class C> struct NotOptional<std::optional<C>> {
  using type = C;
};
/// Refuses a callback with a function whose name is near one of ours.
template <class C> using NamesOf = HasNoNearName<typename NotOptional<std::remove_reference_t<C>>::type>;

template <class C, class Trainer>
concept sees_steps = requires(C& c, SeenBy<C, Trainer>& trainer, StepEnd const& end) { c.on_step_end(trainer, end); };

}  // namespace detail

/// A callback of fit: any class with at least one of these functions. A function that it does not have costs nothing. A
/// function whose name is close to one of these, or that has one of these names and other parameters, is refused.
///
///   on_fit_begin(trainer)             before the first epoch; on_resume(trainer) after it, if a checkpoint was found
///   on_epoch_begin(trainer, epoch)    from 0
///   on_step_end(trainer, end)
///   on_epoch_end(trainer, epoch, e)   e may be changed: Validation adds its scores
///   on_fit_end(trainer, history)      not when fit ends with an exception
///
///   struct PrintRate {
///     static constexpr bool chief_only = true;             // else every process calls it
///     void on_epoch_end(auto& trainer, int epoch, Epoch&) const {
///       std::printf("Learning rate for epoch %d is %g\n", epoch + 1, trainer.learning_rate());
///     }
///   };
///
/// keeps   state(), if C has it, refers to numbers that a checkpoint keeps under `name`
/// source  tf.keras.callbacks.Callback
template <class C, class Trainer>
concept Callback =
    requires(C& c, detail::SeenBy<C, Trainer>& trainer) { c.on_fit_begin(trainer); } ||
    requires(C& c, detail::SeenBy<C, Trainer>& trainer, int epoch) { c.on_epoch_begin(trainer, epoch); } ||
    detail::sees_steps<C, Trainer> ||
    requires(C& c, detail::SeenBy<C, Trainer>& trainer, int epoch, Epoch& e) { c.on_epoch_end(trainer, epoch, e); } ||
    requires(C& c, detail::SeenBy<C, Trainer>& trainer, History const& all) { c.on_fit_end(trainer, all); };

/// The callbacks and sinks of one fit, in the order in which they were given, but Validation first. An empty
/// std::optional is ignored.
template <class Trainer, class... C> class CallbackList {
  template <class Of> static constexpr bool takes_part = Sink<Of> || Callback<Of, Trainer>;
  static_assert(
      (takes_part<typename detail::NotOptional<C>::type> && ...),
      "chorale: fit got an argument that is neither a callback nor a sink. It needs on_epoch_end(trainer, epoch, done) "
      "or another function of a Callback, or those of a Sink. A callback with chief_only gets the trainer as const, "
      "and one that is const itself needs const functions. See docs/48-observe.md");
  template <class Of> static constexpr bool looks_at_events = EventSink<Of> && observed<Of>;

 public:
  static constexpr bool sees_events  = (looks_at_events<typename detail::NotOptional<C>::type> || ...);
  static constexpr bool sees_scalars = (ScalarSink<typename detail::NotOptional<C>::type> || ...);
  static constexpr bool sees_steps   = (detail::sees_steps<typename detail::NotOptional<C>::type, Trainer> || ...);

  explicit CallbackList(Trainer& trainer, C&... all) : trainer_{trainer}, all_{all...} {
    (static_cast<void>(sizeof(Named<typename detail::NotOptional<C>::type>)), ...);
    (static_cast<void>(sizeof(Called<typename detail::NotOptional<C>::type>)), ...);
  }

  void fit_begins() {
    each([](auto& c, auto& trainer) {
      if constexpr (requires { c.on_fit_begin(trainer); }) c.on_fit_begin(trainer);
    });
  }
  void resumed() {
    each([](auto& c, auto& trainer) {
      if constexpr (requires { c.on_resume(trainer); }) c.on_resume(trainer);
    });
  }
  void epoch_begins(int epoch) {
    each([&](auto& c, auto& trainer) {
      if constexpr (requires { c.on_epoch_begin(trainer, epoch); }) c.on_epoch_begin(trainer, epoch);
    });
  }
  void step_ended(StepEnd const& end) {
    each([&](auto& c, auto& trainer) {
      if constexpr (requires { c.on_step_end(trainer, end); }) c.on_step_end(trainer, end);
    });
  }
  void epoch_ended(int epoch, Epoch& done) {
    auto const tell = [&](bool first) {
      each([&](auto& c, auto& trainer) {
        if constexpr (requires { c.on_epoch_end(trainer, epoch, done); })
          if (detail::comes_first<std::remove_reference_t<decltype(c)>> == first) c.on_epoch_end(trainer, epoch, done);
      });
    };
    if constexpr ((detail::comes_first<typename detail::NotOptional<C>::type> || ...)) tell(true);
    tell(false);
  }
  void fit_ended(History const& history) {
    each([&](auto& c, auto& trainer) {
      if constexpr (requires { c.on_fit_end(trainer, history); }) c.on_fit_end(trainer, history);
    });
    flush();
  }

  /// Passes an event to the sinks. Every rank calls it, from its thread.
  void take(Event const& event) noexcept {
    each([&](auto& c, auto&) {
      if constexpr (looks_at_events<std::remove_reference_t<decltype(c)>>) c.take(event);
    });
  }

  /// Passes scalars to the sinks, on the chief only.
  void take(Scalars const& scalars) {
    if (!trainer_.is_chief()) return;
    each([&](auto& c, auto&) {
      if constexpr (ScalarSink<std::remove_reference_t<decltype(c)>>) c.take(scalars);
    });
  }

  /// Flushes the sinks: with each epoch, before each checkpoint and at the end of fit.
  void flush() {
    each([](auto& c, auto&) {
      if constexpr (Sink<std::remove_reference_t<decltype(c)>>) c.flush();
    });
  }

  /// States of all callbacks, those for the chief included: equally many in every process.
  std::vector<CallbackState> states() {
    auto states    = std::vector<CallbackState>{};
    auto const add = [&](auto const& again, auto& c) -> void {
      using Of = std::remove_reference_t<decltype(c)>;
      if constexpr (!std::is_same_v<typename detail::NotOptional<Of>::type, Of>) {
        if (c) again(again, *c);
      } else if constexpr (requires { c.state(); }) {
        auto name = "callback/" + std::string{c.name};
        for (auto const& before : states) name += before.name == name ? "+" : "";  // two of one name
        states.push_back({name, Span<double>{c.state()}});
      }
    };
    std::apply([&](auto&... c) { (add(add, c), ...); }, all_);
    return states;
  }

 private:
  /// Checks of the names of a callback's functions. A type that is neither callback nor sink is refused above.
  template <class Of> using Named = std::conditional_t<takes_part<Of>, detail::HasNoNearName<Of>, int>;
  template <class Of>
  using Called = std::conditional_t<takes_part<Of>, detail::CanBeCalled<Of, detail::SeenBy<Of, Trainer>>, int>;

  void each(auto&& tell) {
    std::apply([&](auto&... c) { (tell_one(tell, c), ...); }, all_);
  }
  void tell_one(auto& tell, auto& c) {
    using Of = std::remove_reference_t<decltype(c)>;
    if constexpr (!std::is_same_v<typename detail::NotOptional<Of>::type, Of>) {
      if (c) tell_one(tell, *c);
    } else {
      if constexpr (detail::for_chief_only<Of>) {
        if (trainer_.is_chief()) tell(c, std::as_const(trainer_));
      } else {
        tell(c, trainer_);
      }
    }
  }

  Trainer& trainer_;
  std::tuple<C&...> all_;
};

template <class Trainer, class... C>
inline constexpr bool observed<CallbackList<Trainer, C...>> = CallbackList<Trainer, C...>::sees_events;

}  // namespace chorale
