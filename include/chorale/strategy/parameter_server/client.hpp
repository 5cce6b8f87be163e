// SPDX-License-Identifier: Apache-2.0
// More than 400 lines: the calls of one worker, which share its connections to the servers.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/strategy/parameter_server/connections.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/server_update.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/strategy/parameter_server/table_words.hpp>
#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// Reports of the workers about an epoch, and their sums.
struct Total {
  std::array<double, parameter_sums> sums{};  // added up in the order of workers
  std::vector<Rank> reported{};
  std::vector<std::array<double, parameter_sums>> each{};  // [worker]; zeros if it has not reported
};

/// Points of a client at which a test may act, e.g. end the process; here they do nothing.
struct NoHooks {
  void in_push() {}  // the first messages are in flight
};

/// Base of Client: requests to all servers at once, and the calls that are not part of training.
template <Endpoint E, class Hooks> class Calls {
 public:
  /// at    endpoint of W workers, then servers; this rank is one of the workers. It outlives the client
  Calls(E& at, ShardLayout const& shards, ParameterOptions options = {}, Hooks hooks = {})
      : at_{&at}, shards_{std::make_unique<ShardLayout>(shards)}, options_{options}, hooks_{std::move(hooks)},
        links_{at, *shards_, options_} {
    CHORALE_EXPECTS(at.size() == shards.ranks() && shards.is_worker(at.rank()),
                    "rank " + std::to_string(at.rank()) + " of " + std::to_string(at.size()) + " is none of " +
                        std::to_string(shards.workers()) + " workers of " + std::to_string(shards.servers()) +
                        " servers: workers come first, then servers");
  }
  ~Calls() {
    try {
      leave();
    } catch (std::exception const&) {  // the servers detect that it is gone
    }
  }
  Calls(Calls const&)            = delete;
  Calls& operator=(Calls const&) = delete;

  /// Replaces the values on all servers, as one version on each; slots of the optimizer are kept.
  void assign(Variables const& variables) {
    shards_->expect_in(variables.values.size());
    exchange([&](Link& link) {
      link.next(Call::assign);
      link.send_values(variables.values);
    });
    count_dropped([] { return std::string{}; });
  }

  /// Receives one slot of the optimizer from all servers.
  ///
  /// into      a flat buffer with the layout of the variables
  void pull_slot(std::size_t slot, Span<float> into) {
    shards_->expect_in(into.size());
    exchange([&](Link& link) {
      link.next(Call::pull_slot).count = slot;
      link.receive_values(into);
    });
    count_dropped([] { return std::string{}; });
  }

  /// Replaces one slot of the optimizer on all servers, by what pull_slot() gave.
  void assign_slot(std::size_t slot, Span<float const> values) {
    shards_->expect_in(values.size());
    exchange([&](Link& link) {
      link.next(Call::assign_slot).count = slot;
      link.send_values(values);
    });
    count_dropped([] { return std::string{}; });
  }

  /// Number of updates that server 0 had made when it last replied; assign_step() sets it on all servers.
  std::uint64_t optimizer_step() { return static_cast<std::uint64_t>(links_[0].reply.sums[0]); }
  void assign_step(std::uint64_t step) {
    exchange([&](Link& link) { link.next(Call::assign_step).version = step; });
  }

  /// Sends this worker's part of an epoch's sums; once for each epoch, and to all servers: none waits for a push of this
  /// worker until every other one has reported as well.
  void report(int epoch, Span<double const> sums) {
    CHORALE_EXPECTS(sums.size() <= parameter_sums, "a report has at most " + std::to_string(parameter_sums) +
                                                       " sums, got " + std::to_string(sums.size()));
    exchange([&](Link& link) {
      auto& request = link.next(Call::report);
      request.epoch = epoch;
      std::ranges::copy(sums, request.sums.begin());
    });
  }

  /// Returns the reports of an epoch, when every other worker has reported it, has left, or is lost.
  Total total(int epoch) {
    auto const workers = static_cast<std::size_t>(shards_->workers());
    auto total         = Total{.each = std::vector<std::array<double, parameter_sums>>(workers)};
    auto const each    = std::as_writable_bytes(Span<std::array<double, parameter_sums>>{total.each});
    auto told          = std::vector<std::byte>(workers + each.size());  // a flag for each worker, then each report
    exchange(
        [&](Link& link) {
          link.next(Call::total).epoch = epoch;
          link.receive(told);
        },
        1);
    total.sums = links_[0].reply.sums;
    for (std::size_t w = 0; w < workers; ++w)
      if (told[w] != std::byte{0}) total.reported.push_back(static_cast<Rank>(w));
    std::ranges::copy(Span<std::byte const>{told}.subspan(workers), each.begin());
    return total;
  }

  /// Has the server that stores all of some variables call an update with their values.
  ///
  /// names     of whole variables, each once
  /// returns   what the function returned there
  /// keeps     this worker's own values stay as they are until it pulls
  /// throws    BadArgument when a name is unknown, when variables are in pieces or on different servers, and with the
  ///           text of what the function threw; Disagreement when the server does not know the update
  template <class F, class... Args>
  auto update_on_server(Variables const& variables, ServerUpdate<F> const& update,
                        std::vector<std::string_view> const& names, Args const&... args) {
    using Signature     = chorale::detail::ServerSignature<decltype(&F::operator())>;
    constexpr bool fits = std::is_invocable_v<F const&, ServerValues, Args const&...> &&
                          std::tuple_size_v<typename Signature::arguments> == sizeof...(Args);
    static_assert(fits,
                  "chorale: these are not the arguments of this ServerUpdate: update_on_server(variables, update, "
                  "names, arguments...)");
    using Result   = typename Signature::result;
    auto message   = std::vector<std::byte>{};
    auto const add = [&](auto const& one) {
      auto const bytes = std::as_bytes(Span<std::remove_cvref_t<decltype(one)> const>{&one, 1});
      message.insert(message.end(), bytes.begin(), bytes.end());
    };
    auto const server = static_cast<std::size_t>(server_of(variables, update.name(), names, add));
    if constexpr (fits) {
      auto const arguments = typename Signature::arguments{args...};
      std::apply([&](auto const&... each) { (add(each), ...); }, arguments);
    }
    CHORALE_EXPECTS(message.size() <= most_update_bytes, "update \"" + update.name() + "\" has a message of " +
                                                             std::to_string(message.size()) + " bytes, and at most " +
                                                             std::to_string(most_update_bytes) + " fit");
    auto into = std::vector<std::byte>{};
    if constexpr (!std::is_void_v<Result>) into.resize(sizeof(Result));
    links_.exchange(
        [&](Link& link) {
          auto& request       = link.next(Call::update);
          request.version     = update.key();
          request.index_bytes = static_cast<std::uint32_t>(names.size());
          request.count       = message.size();
          link.send(message);
          link.receive(into);
        },
        1, [] {}, server);
    auto const& reply = links_[server].reply;
    if (reply.outcome == Outcome::failed)
      throw BadArgument{
          "update \"" + update.name() + "\" on server " + std::to_string(server) + " changed nothing: " + reply.said(),
          "its arguments."};
    if constexpr (!std::is_void_v<Result>) {
      auto result = Result{};
      std::memcpy(&result, into.data(), sizeof result);
      return result;
    }
  }

  /// Leaves the servers: this worker sends nothing more. The last call; otherwise the destructor calls it.
  void leave() {
    if (std::exchange(left_, true)) return;
    exchange([&](Link& link) { link.next(Call::leave); });
  }

  std::uint64_t step() const { return step_; }  // pushes so far

 protected:
  using Link = ServerConnection<E>;

  static constexpr auto all = ~std::size_t{0};

  bool one_server() const { return links_.size() == 1; }

  /// Returns how many servers dropped the last push. Throws NumericFault if it was not finite; `what` names the fault.
  template <class What> int count_dropped(What&& what) {
    auto dropped = 0;
    for (auto const& link : links_) {
      if (link.reply.outcome == Outcome::not_finite)
        throw NumericFault{(link.reply.said().empty()
                                ? what() + " of step " + std::to_string(step_ - 1) + " is not finite on worker " +
                                      std::to_string(shards_->worker_at(at_->rank()))
                                : link.reply.said()) +
                               "; no variable was changed.",
                           "a lower learning rate, clipping, a look at the inputs for NaN, or NonFinite::skip."};
      dropped += link.reply.outcome == Outcome::done ? 0 : 1;
    }
    return dropped;
  }

  /// Sends one request to each server, or to the first ones only, and waits for the replies.
  template <class Ask> void exchange(Ask&& ask, std::size_t servers = all) {
    links_.exchange(ask, std::min(servers, links_.size()), [this] {
      if (pushes(links_[0].request.call)) hooks_.in_push();
    });
  }

  E* at_;
  std::unique_ptr<ShardLayout> shards_;  // links point to it
  ParameterOptions options_;
  Hooks hooks_;
  ServerConnections<E> links_;
  std::uint64_t step_ = 0;

 private:
  /// The server that has all of these variables. Calls add(range) for each.
  template <class Add>
  int server_of(Variables const& variables, std::string const& update, std::vector<std::string_view> const& names,
                Add&& add) const {
    CHORALE_EXPECTS(!names.empty(), "update \"" + update + "\" is called for no variable");
    auto server = -1;
    for (std::size_t i = 0; i < names.size(); ++i) {
      auto const name = std::string{names[i]};
      auto const found =
          std::ranges::find_if(variables.plan, [&](auto const& v) { return std::string_view{v.name} == names[i]; });
      if (found == variables.plan.end())
        throw BadArgument{"update \"" + update + "\" names \"" + name + "\", which is none of the " +
                          std::to_string(variables.plan.size()) + " variables of the model."};
      if (std::ranges::count(names, names[i]) != 1)
        throw BadArgument{"update \"" + update + "\" names \"" + name + "\" twice."};
      auto last        = ShardLayout::Found{};
      auto const range = Range{found->offset, found->end()};
      auto const* home = shards_->home_of(range, last);
      if (home == nullptr)
        throw BadArgument{"update \"" + update + "\" names \"" + name + "\", which is in pieces on several servers.",
                          "a placement that keeps it whole, such as placement::GreedyByBytes."};
      if (server >= 0 && home->server != server)
        throw BadArgument{"update \"" + update + "\" names \"" + std::string{names[0]} + "\" on server " +
                              std::to_string(server) + " and \"" + name + "\" on server " +
                              std::to_string(home->server) + ", and no server can change both as one.",
                          "one server, or a placement that stores them together."};
      server = home->server;
      add(range);
    }
    return server;
  }

  bool left_ = false;
};

/// A worker's client of a parameter server, which presents all of its servers as one.
///
///   auto client = Client{at, shards};
///   client.push_and_pull(gradients, variables, epoch);    a step
///
/// keeps   used by one thread; each call returns when all servers have replied. Values are cached: a pull of a version
///         that this worker has transfers nothing, so nothing else may write to the variables between pulls
/// cost    a call is one round trip, to all servers at once. Gradients are sent from, and values received into, the
///         caller's memory; only runs below 64 KiB are copied
/// throws  PeerLost when a server is gone: it names the shard, and this client cannot be used again. NumericFault when
///         a push is not finite, under NonFinite::stop: no server has applied it. Disagreement when a server has a
///         different layout
template <Endpoint E, class Hooks = NoHooks> class Client : public Calls<E, Hooks> {
  using Base = Calls<E, Hooks>;
  using typename Base::Link;
  using Base::at_, Base::shards_, Base::options_, Base::hooks_, Base::links_, Base::step_;
  using Base::exchange, Base::one_server, Base::count_dropped;

 public:
  Client(E& at, ShardLayout const& shards, ParameterOptions options = {}, Hooks hooks = {})
      : Base{at, shards, options, std::move(hooks)}, words_{*shards_} {}

  /// Sends gradients to the servers, which apply them when Consistency allows.
  ///
  /// returns   how many servers dropped the push: it was late, or not finite and skipped
  int push(Gradients const& gradients, int epoch) {
    return push(Call::push, gradients, views_of(gradients), {}, epoch);
  }

  /// Receives the values after all updates that Consistency makes this worker wait for.
  void pull(Variables const& variables) {
    shards_->expect_in(variables.values.size());
    exchange([&](Link& link) { ask_values(link, Call::pull, variables.values); });
    took_values(variables.values);
  }

  /// Sends gradients like push(), and receives values like pull(), in one round trip. Of a table whose gradient is rows,
  /// only these are sent, and only those rows are received that changed since the last pull.
  int push_and_pull(Gradients const& gradients, Variables const& variables, int epoch) {
    return push_and_pull(gradients, views_of(gradients), variables, epoch);
  }

  /// tables   rows of all tables, in place of the rows of the gradients; a row may occur several times
  int push_and_pull(Gradients const& gradients, Span<RowsView const> tables, Variables const& variables, int epoch) {
    shards_->expect_in(variables.values.size());
    auto const dropped = push(Call::push_and_pull, gradients, tables, variables.values, epoch);
    took_values(variables.values);
    return dropped;
  }

  /// What the last pull has written to the tables of its variables; it has written all that is not in a table.
  PulledRows const& pulled() const { return words_.pulled(); }
  Span<RowTable const> tables() const { return shards_->tables(); }

  /// Sends gradients of single rows to the servers. Gradients of a row that occurs several times are added up.
  ///
  /// gradients   (indices, table.width), sums over `rows` rows of the batch
  /// returns     how many servers dropped the push
  template <std::unsigned_integral Index>
  int push_rows(RowTable const& table, Span<Index const> indices, Span<float const> gradients, float rows, int epoch) {
    expect_rows(table, indices.size(), gradients.size());
    auto const finite = options_.on_non_finite == NonFinite::allow || Kernels<Cpu>::finite(gradients);
    auto const whole  = one_server() || place_of(*at_, gradients) != 0;
    deal_out(table, indices, gradients, whole);
    ++step_;
    exchange([&](Link& link) {
      auto& request = ask_rows(link, Call::push_rows, table, indices, whole);
      request.rows  = rows;
      request.epoch = epoch;
      request.fault = finite ? ServerFault::none : ServerFault::gradient;
      if (!link.is_placed(gradients) && finite) link.send(whole ? std::as_bytes(gradients) : ConstBytes{link.rows_out});
    });
    return count_dropped([] { return std::string{"a gradient of a row"}; });
  }

  /// Receives single rows of a table.
  ///
  /// values   (indices, table.width)
  template <std::unsigned_integral Index>
  void pull_rows(RowTable const& table, Span<Index const> indices, Span<float> values) {
    expect_rows(table, indices.size(), values.size());
    deal_out(table, indices, {}, one_server());
    exchange([&](Link& link) {
      ask_rows(link, Call::pull_rows, table, indices, one_server());
      if (!one_server()) link.rows_in.resize(link.places.size() * table.width * sizeof(float));
      link.receive(one_server() ? std::as_writable_bytes(values) : Bytes{link.rows_in});
    });
    count_dropped([] { return std::string{}; });
    for (auto& link : links_) link.clock = link.reply.clock;
    if (one_server()) return;
    for (auto const& link : links_)
      for (std::size_t i = 0; i < link.places.size(); ++i)
        std::memcpy(values.data() + link.places[i] * table.width, link.rows_in.data() + i * table.width * sizeof(float),
                    table.width * sizeof(float));
  }

 private:
  void expect_rows(RowTable const& table, std::size_t indices, std::size_t values) const {
    CHORALE_EXPECTS(table.width != 0 && values == indices * table.width,
                    std::to_string(indices) + " rows of " + std::to_string(table.width) + " are " +
                        std::to_string(indices * table.width) + " numbers, got " + std::to_string(values));
  }

  Span<RowsView const> views_of(Gradients const& g) {
    views_.clear();
    for (auto const& table : g.tables) views_.push_back(table.view());
    return views_;
  }

  int push(Call call, Gradients const& g, Span<RowsView const> tables, Span<float> values, int epoch) {
    shards_->expect_gradients_in(g.values.size());
    words_.expect(tables.size());
    auto variable    = g.plan.size();
    auto const fault = fault_of(g, tables, variable);
    if (fault == ServerFault::none) words_.deal_out(links_, tables);
    ++step_;
    exchange([&](Link& link) {
      auto& request = call == Call::push ? link.next(call) : ask_values(link, call, values);
      request.rows  = g.counted();
      request.loss  = g.loss();
      request.epoch = epoch;
      request.fault = fault;
      if (fault != ServerFault::none) return;
      link.send_values(g.values);
      link.send_words();
    });
    return count_dropped([&] {
      if (fault == ServerFault::loss) return "the loss, " + number_text(g.loss()) + ",";
      if (variable == g.plan.size()) return std::string{"a gradient"};
      return "the gradient of " + std::string{std::string_view{g.plan[variable].name}};
    });
  }

  Request& ask_values(Link& link, Call call, Span<float> into) {
    auto& request = link.next(call);
    if (into.data() != cached_ && cached_ != nullptr) request.version = ~std::uint64_t{0};
    link.receive_values(into);
    return request;
  }

  template <class Index>
  Request& ask_rows(Link& link, Call call, RowTable const& table, Span<Index const> indices, bool whole) {
    auto& request       = link.next(call);
    request.table       = table;
    request.count       = whole ? indices.size() : link.places.size();
    request.index_bytes = sizeof(Index);
    link.send(whole ? std::as_bytes(indices) : ConstBytes{link.indices});
    return request;
  }

  /// Finds the server of each row, and lists its rows, unless each server gets all of them (`whole`).
  ///
  /// throws  BadArgument when a row is not in the table, or no server has it
  template <class Index>
  void deal_out(RowTable const& table, Span<Index const> indices, Span<float const> gradients, bool whole) {
    for (auto& link : links_) {
      link.places.clear();
      link.indices.clear();
      link.rows_out.clear();
    }
    auto found = ShardLayout::Found{};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      auto const first = table.offset + static_cast<std::size_t>(indices[i]) * table.width;
      auto const* home = indices[i] < table.rows ? shards_->home_of({first, first + table.width}, found) : nullptr;
      if (home == nullptr)
        throw BadArgument{"row " + std::to_string(indices[i]) + " is not among the " + std::to_string(table.rows) +
                          " rows of the table, or no server has all of it."};
      if (whole) continue;
      auto& link       = links_[static_cast<std::size_t>(home->server)];
      auto const index = std::as_bytes(indices.subspan(i, 1));
      link.places.push_back(i);
      link.indices.insert(link.indices.end(), index.begin(), index.end());
      if (gradients.empty()) continue;
      auto const row = std::as_bytes(gradients.subspan(i * table.width, table.width));
      link.rows_out.insert(link.rows_out.end(), row.begin(), row.end());
    }
  }

  /// Returns the fault of this worker's gradients, and the first variable that has it, if that is known.
  ServerFault fault_of(Gradients const& g, Span<RowsView const> tables, std::size_t& variable) const {
    if (options_.on_non_finite == NonFinite::allow) return ServerFault::none;
    if (!std::isfinite(g.loss())) return ServerFault::loss;
    auto const faults = g.trailer().faults();
    if (faults == 1) {  // of more faults, variable() is a sum
      variable = std::min(variable, static_cast<std::size_t>(g.trailer().variable()));
      return ServerFault::gradient;
    }
    auto const finite = [](RowsView const& rows) { return Kernels<Cpu>::finite(rows.values); };
    if (faults == 0 &&
        (g.trailer().summed() == 1 || (Kernels<Cpu>::finite(g.body()) && std::ranges::all_of(tables, finite))))
      return ServerFault::none;
    for (std::size_t i = g.plan.size(), table = tables.size(); i-- > 0;)
      if (!(g.plan[i].spec.by_rows ? finite(tables[--table]) : Kernels<Cpu>::finite(g[i]))) variable = i;
    return ServerFault::gradient;
  }

  void took_values(Span<float> into) {
    count_dropped([] { return std::string{}; });
    cached_ = into.data();
    words_.begin_pull();
    for (auto& link : links_) {
      words_.write(link, into);
      link.version = link.reply.version;
      link.clock   = link.reply.clock;
    }
  }

  TableWords<E> words_;
  std::vector<RowsView> views_;    // of the tables of a push
  float const* cached_ = nullptr;  // the buffer with the versions of the links
};

template <Endpoint E, class Hooks = NoHooks>
Client(E&, ShardLayout const&, ParameterOptions = {}, Hooks = {}) -> Client<E, Hooks>;

}  // namespace chorale::parameter_server
