// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/strategy/coordinator/closure.hpp>
#include <chorale/strategy/coordinator/messages.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// Options that the coordinator and its workers share.
struct CoordinatorOptions {
  std::size_t queue = std::size_t{256} << 10;  // closures that wait before schedule() waits
  Tag tag{0x434c'0000};                        // of all messages
};

namespace detail {

/// The streams of one dataset that a worker uses, by share.
template <class T> struct KeptStreams {};
template <class Element> struct KeptStreams<PerWorkerDataset<Element>> {
  std::map<std::int32_t, WorkerStream<Element>> of{};

  WorkerStream<Element>& at(PerWorkerDataset<Element> const& dataset, ClosureRequest const& request,
                            DataPosition const& position) {
    auto found = of.find(request.share);
    if (found == of.end()) found = of.emplace(request.share, dataset.stream({request.share, request.shares})).first;
    found->second.seek(position);
    return found->second;
  }
};

}  // namespace detail

/// A worker of a Coordinator: runs the closures that it receives, one at a time, until the coordinator ends it.
///
///   auto worker = ClosureWorker{at, here, std::tuple{train, evaluate, train_data}};
///   worker.serve();
///
/// here    the first argument of every closure. Its begin(), if it has one, is called before each closure
/// cost    one thread; a closure is one message each way, and one more each way when it has arguments or a result
/// throws  BadArgument when two closures, or two datasets, have one name; from serve() PeerLost when the coordinator is
///         lost, or a closure throws it for a rank that it needs: the closure then runs elsewhere
template <Endpoint E, class Here, class... Known> class ClosureWorker {
 public:
  /// known   all closures and datasets of the program
  ClosureWorker(E& at, Here& here, std::tuple<Known...> known, CoordinatorOptions options = {})
      : at_{&at}, here_{&here}, options_{options}, known_{std::move(known)} {
    CHORALE_EXPECTS(at.rank() != coordinator, "rank 0 of " + std::to_string(at.size()) + " coordinates");
    auto names = std::vector<std::pair<bool, std::string>>{};
    each([&]<class K>(K& one, auto&) { names.emplace_back(detail::is_closure<K>, one.name()); });
    std::ranges::sort(names);
    auto const twice = std::ranges::adjacent_find(names);
    CHORALE_EXPECTS(twice == names.end(), "two closures, or two datasets, have the name \"" + twice->second + "\"");
  }

  /// Runs closures until the coordinator ends this worker; returns how many it ran.
  std::uint64_t serve() {
    for (auto ran = std::uint64_t{0};; ++ran) {
      in_.add(parameter_server::bytes_of(request_));
      finish(in_);
      auto const has_share = request_.share >= 0 && request_.share < request_.shares;
      if (request_.magic != detail::closure_magic || request_.bytes > detail::closure_limit ||
          (request_.closure != 0 && !has_share))
        throw Disagreement{Fault::collective_mismatch, "rank 0 sent what is no closure.",
                           "the same program in all processes."};
      if (request_.closure == 0) return ran;
      arguments_.resize(std::min(arguments_.size(), request_.bytes));
      in_.add_growing(request_.bytes, arguments_.capacity(), parameter_server::growing(arguments_));
      finish(in_);
      answer();
    }
  }

 private:
  static constexpr Rank coordinator = 0;

  template <class F> void each(F&& f) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (f(std::get<i>(known_), std::get<i>(streams_)), ...);
    }(std::index_sequence_for<Known...>{});
  }

  void finish(parameter_server::Transfer<E>& transfer) {
    for (auto idle = parameter_server::Idle{}; !transfer.empty();)
      if (transfer.advance(*at_, coordinator, options_.tag)) idle.busy();
      else idle.rest_at(*at_);
  }

  void answer() {
    result_.bytes.clear();
    used_.clear();
    reply_ = {.number = request_.number};
    try {
      run();
    } catch (PeerLost const& lost) {  // this rank cannot go on, another may
      fail(*at_, lost.what());
      throw;
    } catch (std::exception const& error) { say(std::max(exit_code(error), 1), error.what()); } catch (...) {
      say(1, "it threw what is no std::exception");
    }
    reply_.data = request_.data;
    for (std::size_t i = 0; i < used_.size(); ++i) reply_.data[i] = *used_[i];
    reply_.bytes = result_.bytes.size();
    out_.add(parameter_server::bytes_of(reply_));
    out_.add_cut(result_.bytes);
    finish(out_);
  }

  void say(int code, std::string const& what) {
    result_.bytes.clear();
    for (auto const c : what) result_.put(c);
    reply_.failed = code;
  }

  void run() {
    auto found = false;
    each([&]<class K>(K& one, auto&) {
      if constexpr (detail::is_closure<K>)
        if (one.id() == request_.closure) {
          found = true;
          call(one);
        }
    });
    if (!found)
      throw Disagreement{Fault::collective_mismatch,
                         "rank " + std::to_string(at_->rank()) + " knows no such closure among its " +
                             std::to_string(sizeof...(Known)) + " closures and datasets.",
                         "all closures and datasets in the call of coordinate() or ClosureWorker."};
  }

  template <class F> void call(Closure<F>& closure) {
    using Signature = detail::SignatureOf<F, Here>;
    if constexpr (requires { here_->begin(); }) here_->begin();
    auto from = detail::Unpacked{arguments_};
    if constexpr (detail::expect_closure<F, Here>())
      call_with<typename Signature::result>(closure, from, static_cast<typename Signature::parameters*>(nullptr));
  }

  template <class R, class F, class... P>
  void call_with(Closure<F>& closure, detail::Unpacked& from, std::tuple<P...>*) {
    auto all = std::tuple<Held<P>...>{argument<P>(from)...};  // braces: from left to right
    if (from.left() != 0)
      throw Disagreement{Fault::collective_mismatch, std::to_string(from.left()) + " bytes of arguments are left.",
                         "the same program in all processes."};
    auto const run = [&](auto&... held) { return closure.function()(*here_, passed<P>(held)...); };
    if constexpr (std::is_void_v<R>) std::apply(run, all);
    else result_.put(std::apply(run, all));
  }

  template <class P>
  using Held = std::conditional_t<detail::StreamOf<P>::value, std::remove_reference_t<P>*, std::decay_t<P>>;

  template <class P> Held<P> argument(detail::Unpacked& from) {
    if constexpr (detail::StreamOf<P>::value) return stream<typename detail::StreamOf<P>::element>();
    else return from.take<std::decay_t<P>>();
  }

  template <class P> static P&& passed(Held<P>& held) {
    if constexpr (detail::StreamOf<P>::value) return *held;
    else return static_cast<P&&>(held);
  }

  /// Returns the next stream of the request.
  template <class Element> WorkerStream<Element>* stream() {
    auto const& place = request_.data[used_.size()];
    auto* found       = static_cast<WorkerStream<Element>*>(nullptr);
    each([&]<class K>(K& one, auto& kept) {
      if constexpr (std::is_same_v<K, PerWorkerDataset<Element>>)
        if (one.id() == place.dataset) found = &kept.at(one, request_, place);
    });
    if (found == nullptr)
      throw Disagreement{Fault::collective_mismatch,
                         "rank " + std::to_string(at_->rank()) + " knows no such dataset among its " +
                             std::to_string(sizeof...(Known)) + " closures and datasets.",
                         "all closures and datasets in the call of coordinate() or ClosureWorker."};
    used_.push_back(&found->position());
    return found;
  }

  E* at_;
  Here* here_;
  CoordinatorOptions options_;
  std::tuple<Known...> known_;
  std::tuple<detail::KeptStreams<Known>...> streams_;
  detail::ClosureRequest request_;
  detail::ClosureReply reply_;
  std::vector<std::byte> arguments_;
  std::vector<detail::DataPosition const*> used_;  // of the streams of this closure
  detail::Packed result_;
  parameter_server::Transfer<E> in_{parameter_server::Transfer<E>::Direction::in},
      out_{parameter_server::Transfer<E>::Direction::out};
};

}  // namespace chorale
