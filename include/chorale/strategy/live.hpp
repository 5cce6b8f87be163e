// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/strategy/team.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// The global batches of one pass, each dealt out to the replicas: a range of PerReplica<Batch>.
///
/// keeps   shares are views, disjoint, in order, and differ by at most one row, or one logical shard; some may be empty
template <class Stream, class Batch>
class Distributed {
 public:
  /// shards    logical shards that are dealt out whole; 0: rows are dealt out one by one
  Distributed(Stream stream, int replicas, int shards)
      : stream_{std::move(stream)}, shares_(static_cast<std::size_t>(replicas)), shards_{shards} {}

  /// The next batch in shares, or null at the end of the pass; valid until the next call.
  PerReplica<Batch>* next() {
    auto batch = Batch{};
    if (!stream_.next(batch)) return nullptr;
    auto const n = static_cast<int>(shares_.size());
    for (int i = 0; i < n; ++i) {
      auto& share = shares_[static_cast<std::size_t>(i)];
      if constexpr (requires { batch.part(i, n, shards_); }) {
        share = shards_ == 0 ? batch.part(i, n) : batch.part(i, n, shards_);
      } else {
        CHORALE_EXPECTS(shards_ == 0, "this dataset's batches cannot be dealt out in logical shards");
        share = batch.part(i, n);
      }
    }
    return &shares_;
  }

  class iterator {
   public:
    using value_type        = PerReplica<Batch>;
    using difference_type   = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    explicit iterator(Distributed& from) : from_{&from}, at_{from.next()} {}
    PerReplica<Batch>& operator*() const { return *at_; }
    iterator& operator++() {
      at_ = from_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return at_ == nullptr; }

   private:
    Distributed* from_;
    PerReplica<Batch>* at_;
  };
  iterator begin() { return iterator{*this}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  Stream stream_;
  PerReplica<Batch> shares_;
  int shards_;
};

namespace detail {

template <class S, class R, class T>
inline constexpr bool fit_together = Strategy<S> && Transport<T> && ReduceAlgorithm<R, T> && Reaches<T, S>;

/// What Live is when its parts fit together; otherwise an empty class, so that Live's sentence is the only error.
template <class S, class R, class T>
class Connected {
 public:
  explicit Connected(auto&&...) {}
};

template <class S, class R, class T>
  requires fit_together<S, R, T>
class Connected<S, R, T> {
 public:
  using device   = typename S::device;
  using endpoint = typename T::endpoint;
  using replica  = Replica<R, endpoint>;

  Connected(S strategy, R reduce, T transport)
      : strategy_{std::move(strategy)}, reduce_{std::move(reduce)}, transport_{std::move(transport)},
        team_{strategy_.local_devices()} {
    connect();
  }

  int num_replicas() const { return strategy_.num_replicas(); }            // in the whole job
  S const& strategy() const { return strategy_; }
  replica const& local_replica(std::size_t i) const { return replicas_[i]; }

  /// One copy of the model's variables and optimizer state on each replica, bit-equal.
  template <class Model>
  auto create(Model const& model, Seed seed = {}) {
    static_assert(nn::ModelOn<Model, device>, "chorale: the model argument is not a Model. It needs input, output and "
        "instantiate(device, seed). See nn::compile");
    auto copies = std::vector<typename Model::template instance<device>>{};
    copies.reserve(team_.size());
    for (std::size_t i = 0; i < team_.size(); ++i) {
      copies.push_back(model.instantiate(team_.device(i), seed));
      if constexpr (requires { copies.back().rank; }) copies.back().rank = replicas_[i].id();
    }
    return PerReplica{std::move(copies)};
  }

  /// Deals out each global batch of one pass over a dataset.
  ///
  /// epoch     which pass, 0-based: a dataset that shuffles gives another order for each
  template <Dataset Batches>
  auto distribute(Batches const& batches, int epoch = 0) const {
    using Element = typename Batches::element;
    if constexpr (requires(Element b) { b.part(0, 1); }) {
      auto stream = batches.stream(static_cast<std::size_t>(epoch));
      return Distributed<decltype(stream), Element>{std::move(stream), num_replicas(), shards()};
    } else {
      static_assert(sizeof(Element) == 0, "chorale: distribute takes batches; end the dataset with .batch(n)");
      return std::vector<PerReplica<Element>>{};                           // so that the sentence is the only error
    }
  }

  /// Calls step(replica, arguments...) on every replica at once, with that replica's arguments.
  ///
  /// returns   PerReplica<result>, or nothing when step returns nothing
  /// throws    what the first step that failed threw; the others end too, and the replicas are connected anew
  template <class Step, class... Args>
  auto run(Step&& step, PerReplica<Args>&... args) {
    using Result = std::invoke_result_t<Step&, replica&, Args&...>;
    if constexpr (std::is_void_v<Result>) {
      run_on_all([&](std::size_t i) { step(replicas_[i], args[i]...); });
    } else {
      auto results = PerReplica<Result>(team_.size());
      run_on_all([&](std::size_t i) { results[i] = step(replicas_[i], args[i]...); });
      return results;
    }
  }

  /// One value from one for each replica: V is a monoid such as Sum, so uneven shares weigh what they should.
  template <class V>
  V reduce(PerReplica<V> const& values) const {
    auto total = V{};
    for (auto const& value : values) total += value;
    return total;
  }

  /// The values of all replicas, in the order of their ranks.
  template <class V>
  std::vector<V> gather(PerReplica<V> const& values) const {
    return {values.begin(), values.end()};
  }

 private:
  static constexpr int shards() {
    if constexpr (sharded<R>) return R::logical_shards;
    else return 0;
  }

  /// When a replica throws, the others are released from what they wait for; then, where all live in this process, all
  /// are connected anew, so that a caller who knows what to do about the reason can go on.
  template <class Work>
  void run_on_all(Work&& work) {
    try {
      team_.run(work, [this](std::size_t i, std::string const& why) { fail(endpoints_[i], why); });
    } catch (...) {
      if (strategy_.group().is_all_local()) connect();                     // else others may be gone for good
      throw;
    }
  }

  void connect() {
    replicas_.clear();
    endpoints_ = transport_.connect(strategy_.group());
    for (auto& at : endpoints_) replicas_.emplace_back(reduce_, at);
  }

  S strategy_;
  R reduce_;
  T transport_;
  std::vector<endpoint> endpoints_;
  std::vector<replica> replicas_;
  Team<device> team_;                                                      // last: its threads use the above
};

}  // namespace detail

/// A strategy whose replicas are connected.
///
///   auto strategy = Live{MirroredStrategy{Cpu::split(4)}, RingAllReduce{}, LocalTransport{}};
///
/// The parameters carry no constraint on purpose: at the front door a sentence comes before the notes.
template <class S, class R, class T>
class Live : public detail::Connected<S, R, T> {
  static_assert(Strategy<S>, "chorale: the strategy argument is not a Strategy. It needs device, placement, "
      "num_replicas(), group(), local_devices(), update(replica, model, gradients). See docs/30-compose.md");
  static_assert(Transport<T>, "chorale: the transport argument is not a Transport. It needs reaches(Memory), "
      "connect(Group), and an endpoint with rank(), size(), send(), recv(). See docs/30-compose.md");
  static_assert(!Transport<T> || ReduceAlgorithm<R, T>, "chorale: this Reduce cannot run over this Transport. "
      "DirectAllReduce needs ranks that read each other's memory, e.g. LocalTransport; RingAllReduce runs over any. "
      "See docs/30-compose.md");
  static_assert(!Transport<T> || !Strategy<S> || Reaches<T, S>, "chorale: this Transport cannot read the memory "
      "of this Strategy's device. Use one whose reaches(Memory) says yes to it; LocalTransport reaches host memory. "
      "See docs/30-compose.md");

 public:
  Live(S strategy, R reduce, T transport)
      : detail::Connected<S, R, T>{std::move(strategy), std::move(reduce), std::move(transport)} {}
};

}  // namespace chorale
