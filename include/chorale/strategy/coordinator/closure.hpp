// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/strategy/coordinator/messages.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale {

/// A function that workers run for a coordinator, known by its name, which is the same in all processes of one program.
///
///   auto const train = Closure{"train", [](auto& here, WorkerStream<Batch>& batches, int steps) { ..; return loss; }};
///
/// here    the worker's context: its model, its connection to the servers; see coordinate()
/// others  arguments, PlainData or sequences of such; and WorkerStream<Element>&, for which schedule() takes a
///         PerWorkerDataset<Element>, up to 4 of them
/// keeps   every worker has a copy of the function, and calls it one at a time. What it captures by reference must
///         exist in the worker's process, and workers that are threads share it
template <class F> class Closure {
 public:
  Closure(std::string name, F function) : name_{std::move(name)}, function_{std::move(function)} {
    CHORALE_EXPECTS(!name_.empty(), "a closure needs a name, by which all processes know it");
  }

  std::string const& name() const { return name_; }
  std::uint64_t id() const { return detail::hash_of_name(name_); }
  F const& function() const { return function_; }
  F& function() { return function_; }

 private:
  std::string name_;
  F function_;
};

/// Share of the data that a worker's stream reads: `index` of `count`, the number of workers at the start.
struct WorkerShare {
  int index = 0, count = 1;
};

/// A worker's position in a share of a dataset, which advances from closure to closure, and from pass to pass.
template <class Element> class WorkerStream {
 public:
  /// Reads the next element, valid until the next call; false at the end of a pass: the call after it begins the next.
  bool next(Element& element) {
    if (!next_) next_ = begin_(position_.pass);
    if (next_(element)) {
      ++position_.element;
      return true;
    }
    next_             = nullptr;
    position_.element = 0;
    ++position_.pass;
    return false;
  }

  std::size_t pass() const { return position_.pass; }        // 0-based
  std::size_t element() const { return position_.element; }  // of the pass: the next to read

  /// Moves to a position, unless it is there already, by reading the pass from its beginning.
  ///
  /// throws  BadArgument when the pass is shorter
  void seek(detail::DataPosition const& to) {
    if (position_ == to) return;
    next_        = nullptr;
    position_    = {.dataset = position_.dataset, .pass = to.pass};
    auto element = Element{};
    for (auto i = std::uint64_t{0}; i < to.element; ++i)
      if (!next(element))
        throw BadArgument{"pass " + std::to_string(to.pass) + " of a dataset ended after " + std::to_string(i) +
                              " elements, but " + std::to_string(to.element) + " of it were taken before.",
                          "a dataset whose pass is a function of its number."};
  }
  detail::DataPosition const& position() const { return position_; }

 private:
  template <class> friend class PerWorkerDataset;
  using Next  = std::function<bool(Element&)>;
  using Begin = std::function<Next(std::size_t pass)>;

  WorkerStream(std::uint64_t dataset, Begin begin) : position_{.dataset = dataset}, begin_{std::move(begin)} {}

  detail::DataPosition position_;
  Begin begin_;
  Next next_;  // empty: the pass has yet to begin
};

/// A dataset with a separate share for each worker, created where it is used.
///
///   auto const train = PerWorkerDataset<Batch>{"train", [](WorkerShare share) { return rows_of(share).batch(32); }};
///
/// make    make(share) returns a Dataset of Element; its pass p is stream(p)
/// keeps   a live worker continues a lost worker's share from the first element that no finished closure has taken; to
///         get there it reads the pass again from its beginning
template <class Element> class PerWorkerDataset {
 public:
  template <class Make> requires std::invocable<Make const&, WorkerShare>
  PerWorkerDataset(std::string name, Make make) : name_{std::move(name)} {
    using Data = std::invoke_result_t<Make const&, WorkerShare>;
    constexpr bool gives =
        requires(Data const& data, Element& element) { static_cast<bool>(data.stream(0U).next(element)); };
    static_assert(gives,
                  "chorale: PerWorkerDataset<Element>'s function takes a WorkerShare and returns a Dataset of "
                  "Element");
    CHORALE_EXPECTS(!name_.empty(), "a dataset needs a name, by which all processes know it");
    if constexpr (gives)
      make_ = [make = std::move(make)](WorkerShare share) -> Begin {
        auto data = std::make_shared<Data const>(make(share));
        return [data](std::size_t pass) -> Next {
          auto stream = std::make_shared<decltype(data->stream(pass))>(data->stream(pass));
          return [data, stream](Element& element) { return stream->next(element); };
        };
      };
  }

  std::string const& name() const { return name_; }
  std::uint64_t id() const { return detail::hash_of_name(name_); }

  /// The stream of a share, at its beginning.
  WorkerStream<Element> stream(WorkerShare share) const { return {id(), make_(share)}; }

 private:
  using Next  = typename WorkerStream<Element>::Next;
  using Begin = typename WorkerStream<Element>::Begin;

  std::string name_;
  std::function<Begin(WorkerShare)> make_;
};

namespace detail {

template <class T> inline constexpr bool is_closure             = false;
template <class F> inline constexpr bool is_closure<Closure<F>> = true;

/// Parameter of a closure: `value` is true if it is a stream, of `element`.
template <class P> struct StreamOf {
  static constexpr bool value = false;
};
template <class Element> struct StreamOf<WorkerStream<Element>&> {
  static constexpr bool value = true;
  using element               = Element;
};

/// First parameter, result, and other parameters of a closure; nothing is known of what has not the form of one.
template <class Method> struct ParametersOf {
  using first      = void;
  using result     = void;
  using parameters = std::tuple<>;
};
template <class C, class R, class Here, class... P, bool never_throws>
struct ParametersOf<R (C::*)(Here&, P...) const noexcept(never_throws)> {
  using first      = Here;
  using result     = R;
  using parameters = std::tuple<P...>;
};
template <class C, class R, class Here, class... P, bool never_throws>
struct ParametersOf<R (C::*)(Here&, P...) noexcept(never_throws)> : ParametersOf<R (C::*)(Here&, P...) const> {};

/// Type of a closure's call, whose first parameter is `auto&` or names the worker's type.
template <class F, class Here> struct MethodOf {
  using type = void;
};
template <class F, class Here> requires requires { typename std::type_identity_t<decltype(&F::operator())>; }
struct MethodOf<F, Here> {
  using type = decltype(&F::operator());
};
template <class F, class Here>
requires requires { typename std::type_identity_t<decltype(&F::template operator()<Here>)>; } struct MethodOf<F, Here> {
  using type = decltype(&F::template operator()<Here>);
};

template <class P> inline constexpr bool passes                        = StreamOf<P>::value || Travels<std::decay_t<P>>;
template <class P> inline constexpr bool all_pass                      = false;
template <class... P> inline constexpr bool all_pass<std::tuple<P...>> = (passes<P> && ...);

template <class P> inline constexpr int streams                      = 0;
template <class... P> inline constexpr int streams<std::tuple<P...>> = (StreamOf<P>::value + ... + 0);

/// Result and parameters of a closure, those after `here`, where `here` is of type Here.
template <class F, class Here> struct SignatureOf : ParametersOf<typename MethodOf<F, Here>::type> {
  using Base = ParametersOf<typename MethodOf<F, Here>::type>;

  static constexpr bool known =
      !std::is_void_v<typename Base::first> && std::is_convertible_v<Here*, typename Base::first*>;
  static constexpr bool sends   = all_pass<typename Base::parameters>;
  static constexpr bool answers = std::is_void_v<typename Base::result> || Travels<std::decay_t<typename Base::result>>;
  static constexpr bool few     = streams<typename Base::parameters> <= static_cast<int>(most_datasets);
};

/// True if F can be a closure; what cannot is refused by one sentence, wherever it is named first.
template <class F, class Here> constexpr bool expect_closure() {
  using S = SignatureOf<F, Here>;
  static_assert(S::known,
                "chorale: a closure is a lambda that takes `auto& here`, or the worker's type, and then "
                "arguments whose types it names. See docs/42-strategies.md");
  static_assert(!S::known || S::sends,
                "chorale: the parameters of a closure after `here` travel by message: plain data, or std::string or "
                "std::vector of it; or they are WorkerStream<Element>&");
  static_assert(!S::known || S::answers,
                "chorale: the result of a closure travels by message: plain data, or std::string or std::vector of it");
  static_assert(!S::known || S::few, "chorale: a closure has at most 4 streams");
  return S::known && S::sends && S::answers && S::few;
}

}  // namespace detail
}  // namespace chorale
