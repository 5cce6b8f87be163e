// SPDX-License-Identifier: Apache-2.0
// A little over 300 lines: one class, and a sentence for each operation that it does not have.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/replica_group.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/runtime/gradient_reducer.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// A replica of a ParameterServerStrategy: it computes, and calls the servers. The replicas of one worker call them
/// together: their gradients are one push, and all get the same values.
///
/// keeps   workers send each other nothing: their reports go through the servers, which go on without a lost worker. So
///         operations that need every replica at once, such as all_reduce, do not compile
/// order   the replicas of one worker make the same calls in the same order; so do all workers, for calls that wait
template <class R, class E> class ParameterReplica {
 public:
  /// replicas   of all workers
  ParameterReplica(R const&, E& at, int replicas) : at_{&at}, replicas_{replicas} {}

  /// Checks R against the servers and options, before anything is started.
  ///
  /// throws  BadArgument when the tree of Reproducible cannot be cut into as many equal parts as there are replicas, or
  ///         its pushes would be rounded or skipped
  static void expect_fit(parameter_server::ShardLayout const& shards, ParameterOptions const& options) {
    if constexpr (ShardedReduce<R>) {
      auto const leaves = std::to_string(R::logical_shards), replicas = std::to_string(shards.rank_of(0));
      CHORALE_EXPECTS(options.pushed_as == PushedAs::f32, "under Reproducible pushes are not rounded to 16 bits");
      CHORALE_EXPECTS(options.on_non_finite != NonFinite::skip,
                      "a server skips what one worker pushed, where one replica skips the step: other bits under "
                      "Reproducible");
      if (R::logical_shards % shards.rank_of(0) != 0)
        throw BadArgument{"Reproducible<" + leaves + "> cuts a batch into " + leaves + " logical shards, which " +
                              replicas + " replicas of ParameterServerStrategy cannot share evenly.",
                          "1, 2, 4, .. or " + leaves + " replicas in all workers."};
    }
  }

  /// me      index of this replica in its worker; the first one calls the servers
  void connect(parameter_server::ShardLayout const& shards, ParameterOptions options,
               std::shared_ptr<parameter_server::ReplicaGroup<E>> group, std::size_t me) {
    group_ = std::move(group);
    me_    = me;
    if (me == 0) client_ = std::make_unique<parameter_server::Client<E>>(*at_, shards, options);
  }

  Rank id() const { return at_->rank(); }         // in [0, num_replicas())
  int num_replicas() const { return replicas_; }  // of all workers; servers do not count
  bool leads() const { return me_ == 0; }         // true for the first replica of its worker

  /// Sets the number of the step that begins, which errors and heartbeats report.
  void begin_step(std::uint64_t step) { chorale::begin_step(*at_, step); }

  /// Computes forward, loss and backward; the gradients are then sent to the servers, not through R. Under Reproducible
  /// they are the sum at this replica's node of the tree, which worker and server continue to add up.
  template <class Model, class Batch> ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    auto const learn = [](Model& to, Batch const& rows) {
      return to.value_and_gradient(rows, rows.first_row, LooksAtEnd{});
    };
    if constexpr (ShardedReduce<R>) {
      auto const loss = shards_.compute(model, batch, id(), replicas_, learn);
      auto const to   = model.gradients();
      std::copy_n(shards_.nodes().at(replicas_ + id()), to.values.size(), to.values.begin());
      return {loss, to};
    } else {
      auto const loss = learn(model, batch);
      return {loss, model.gradients()};
    }
  }

  /// Ends a step: sends gradients to the servers, and receives values that are as new as Consistency requires.
  void push_and_pull(Gradients const& gradients, Variables const& variables, int epoch) {
    if (group().size() > 1) {
      group_->add_up(*at_, me_, gradients.values);
      add_up_tables(gradients);
    }
    lead(variables, [&] {
      if constexpr (ShardedReduce<R>) client_->push_and_pull(gradients, views_of_shards(gradients), variables, epoch);
      else client_->push_and_pull(gradients, variables, epoch);
    });
  }
  void pull(Variables const& variables) {
    lead(variables, [&] { client_->pull(variables); });
  }

  /// Returns when every replica of every live worker has called it.
  void barrier() {
    if (group().size() > 1) group_->meet(*at_, me_);
    lead({}, [&] { tell_all(Span<std::byte const>{}); });
  }

  /// Replaces the values on the servers. Only for the first replica of a worker; the others pull afterwards.
  void assign(Variables const& variables) { client().assign(variables); }

  /// Pulls the optimizer's slots of all servers, and returns its number of updates. Only for a worker's first replica.
  ///
  /// slots     one after the other, each laid out like the variables without header and trailer
  /// scratch   gradients that are not needed any more
  /// cost      where the model has tables whose gradients are rows, memory for all variables, for a while
  std::uint64_t pull_slots(Variables const& variables, Span<float> slots, Gradients const& scratch) {
    client().pull(variables);  // its reply has the step
    auto const step = client_->optimizer_step();
    each_slot(variables, slots, scratch, [&](std::size_t i, Span<float> flat, Span<float> dense, Span<float> tables) {
      client_->pull_slot(i, flat);
      std::ranges::copy(flat.subspan(plan::header, dense.size()), dense.begin());
      std::ranges::copy(flat.last(tables.size()), tables.begin());
    });
    return step;
  }

  /// Replaces the optimizer's slots and number of updates on all servers, by what pull_slots() gave.
  void assign_slots(Variables const& variables, Span<float> slots, Gradients const& scratch, std::uint64_t step) {
    each_slot(variables, slots, scratch, [&](std::size_t i, Span<float> flat, Span<float> dense, Span<float> tables) {
      std::ranges::copy(dense, flat.begin() + plan::header);
      std::ranges::copy(tables, flat.last(tables.size()).begin());
      client().assign_slot(i, flat);
    });
    client().assign_step(step);
  }

  /// Values of the replicas of all live workers, in the order of ranks, and which workers these are.
  template <class V> struct Told {
    std::vector<V> values;
    std::vector<Rank> workers;
  };

  /// Sends the values of this worker's replicas to all workers, and returns the values of all live workers. Only for
  /// the first replica of a worker.
  ///
  /// mine    the same number of values on each worker
  /// keeps   every live worker gets the same values
  /// cost    two round trips to server 0 for every 128 bytes
  template <class V> Told<V> tell_all(Span<V const> mine) {
    using Letter     = std::array<double, parameter_server::parameter_sums>;
    auto const bytes = std::as_bytes(mine);
    auto const n     = bytes.size();
    auto all         = std::vector<std::byte>(n * (static_cast<std::size_t>(replicas_) / group().size()));
    auto workers     = std::vector<Rank>{};
    for (std::size_t at = 0; at == 0 || at < n; at += sizeof(Letter)) {
      auto letter     = Letter{};
      auto const part = bytes.subspan(at, std::min(sizeof letter, n - at));
      if (!part.empty()) std::memcpy(letter.data(), part.data(), part.size());
      client().report(told_, letter);
      auto const total = client_->total(told_);
      told_            = (told_ + 1) & 0x3fff'ffff;
      if (at == 0) workers = total.reported;
      else std::erase_if(workers, [&](Rank w) { return std::ranges::count(total.reported, w) == 0; });
      for (auto const w : total.reported)
        if (auto const from = static_cast<std::size_t>(w); !part.empty())
          std::memcpy(all.data() + from * n + at, total.each[from].data(), part.size());
    }
    auto told = Told<V>{std::vector<V>(workers.size() * mine.size()), workers};
    for (std::size_t i = 0; i < workers.size() && n != 0; ++i)
      std::memcpy(told.values.data() + i * mine.size(), all.data() + static_cast<std::size_t>(workers[i]) * n, n);
    return told;
  }

  /// Has the server that stores some variables call an update, e.g. one that changes them together. Only for the first
  /// replica of a worker. See Client::update_on_server.
  template <class F, class... Args>
  auto update_on_server(Variables const& variables, ServerUpdate<F> const& update,
                        std::vector<std::string_view> const& names, Args const&... args) {
    return client().update_on_server(variables, update, names, args...);
  }

  /// Leaves the servers. The last call.
  void leave() {
    if (client_) client_->leave();
  }

  /// Messages and bytes that this rank has sent. Only over Counting<T>, which counts them.
  auto sent() const requires requires(E const& at) { at.sent(); } { return at_->sent(); }

  /// Time of this rank's virtual clock. Only over SimulatedTransport.
  auto now() const requires requires(E const& at) { at.now(); } { return at_->now(); }

  // Operations of a Replica that would wait here for servers, which take no part: they do not compile.

  template <class... Args> void all_reduce(Args&&...) {
    static_assert(never<Args...>,
                  "chorale: under ParameterServerStrategy no replica all-reduces gradients: servers add "
                  "up what workers push, and update. End the step by live.update(replica, model, "
                  "gradients), which every strategy has");
  }
  template <class... Args> ValueAndGradient value_and_gradient_ahead(Args&&...) {
    static_assert(never<Args...>,
                  "chorale: under ParameterServerStrategy no gradients leave ahead of the others: a step "
                  "is one push. Use replica.value_and_gradient(model, batch), and then "
                  "live.update(replica, model, gradients)");
    return {};
  }
  template <class... Args> void all_gather(Args&&...) {
    static_assert(never<Args...>,
                  "chorale: under ParameterServerStrategy workers send each other nothing, so that a lost "
                  "one is only missed. live.gather(values) brings a value of each replica together");
  }
  template <class... Args> void broadcast(Args&&...) {
    static_assert(never<Args...>,
                  "chorale: under ParameterServerStrategy workers send each other nothing, so that a lost "
                  "one is only missed. Let the chief assign(variables), and the others pull(variables) "
                  "after a barrier()");
  }
  template <class... Args> void exchange(Args&&...) {
    static_assert(never<Args...>,
                  "chorale: under ParameterServerStrategy workers send each other nothing, so that a lost "
                  "one is only missed. live.gather(values) brings a value of each replica together");
  }
  template <class... Args> void average(Args&&...) {
    static_assert(never<Args...>,
                  "chorale: under ParameterServerStrategy servers have the variables, and nobody averages "
                  "copies of them. replica.pull(variables) gets what they have");
  }

 private:
  template <class... Args> static constexpr bool never = sizeof...(Args) > 1'000;

  struct NoShards {};
  template <class Reduce> struct ShardsOf {
    using type = NoShards;
  };
  template <ShardedReduce Reduce> struct ShardsOf<Reduce> {
    using type = detail::ShardSums<Reduce::logical_shards>;
  };

  /// Calls f(i, flat, dense, tables) for each slot: memory laid out as the variables, and the two parts of the slot.
  template <class F>
  static void each_slot(Variables const& variables, Span<float> slots, Gradients const& scratch, F&& f) {
    auto const dense = variables.body().size(), n = dense + variables.tables;
    auto apart      = std::vector<float>(variables.tables == 0 ? 0 : variables.values.size());
    auto const flat = variables.tables == 0 ? scratch.values : Span<float>{apart};
    for (std::size_t i = 0; (i + 1) * n <= slots.size() && n != 0; ++i)
      f(i, flat, slots.subspan(i * n, dense), slots.subspan(i * n + dense, variables.tables));
  }

  /// Adds the rows of all replicas of this worker to the rows of the first, in the order of replicas.
  void add_up_tables(Gradients const& gradients) {
    if (gradients.tables.empty()) return;
    if constexpr (ShardedReduce<R>) {
      group_->collect(*at_, me_, shards_, [&](auto const& theirs) { shards_.append_rows(theirs, gradients.tables); });
    } else {
      auto mine = gradients.tables;
      group_->collect(*at_, me_, mine, [&](Span<RowGradients> theirs) {
        for (std::size_t t = 0; t < mine.size(); ++t) mine[t].add(theirs[t].view());
      });
    }
  }

  /// Rows of the logical shards, each by itself: servers add them up in their order.
  Span<RowsView const> views_of_shards(Gradients const& gradients) {
    views_.clear();
    for (std::size_t t = 0; t < gradients.tables.size(); ++t) views_.push_back(shards_.rows(t).view());
    return views_;
  }

  /// throws  BadArgument when this replica has no group yet
  parameter_server::ReplicaGroup<E>& group() {
    CHORALE_EXPECTS(group_ != nullptr, "the servers have no variables yet: Live::create comes before what calls them");
    return *group_;
  }
  parameter_server::Client<E>& client() {
    CHORALE_EXPECTS(client_ != nullptr, "replica " + std::to_string(id()) +
                                            " calls the servers before Live::create, or is "
                                            "not the first of its worker, which alone may make this call");
    return *client_;
  }

  /// What the first replica of a worker has pulled.
  struct Pulled {
    float const* values;
    Span<parameter_server::RowTable const> tables;
    parameter_server::PulledRows const* rows;
  };

  /// Calls f() on the first replica, which fills its variables; then all others get what it has changed.
  template <class F> void lead(Variables const& mine, F&& f) {
    if (group().size() == 1) return f();
    auto pulled = Pulled{mine.values.data(), {}, nullptr};
    group_->lead(
        *at_, me_, pulled,
        [&] {
          f();
          pulled.tables = client_->tables();
          pulled.rows   = &client_->pulled();
        },
        [&](Pulled const& from) {
          if (!mine.values.empty()) from.rows->copy(from.tables, from.values, mine.values, seen_);
        });
  }

  E* at_;
  int replicas_;  // of all workers
  std::shared_ptr<parameter_server::ReplicaGroup<E>> group_;
  std::size_t me_ = 0;
  int told_       = 0;  // calls of tell_all; the same on all workers
  std::unique_ptr<parameter_server::Client<E>> client_;
  std::uint64_t seen_ = 0;       // number of the last pull whose values it has
  std::vector<RowsView> views_;  // of the tables of a push
  [[no_unique_address]] typename ShardsOf<R>::type shards_;
};

}  // namespace chorale
