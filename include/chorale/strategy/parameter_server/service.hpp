// SPDX-License-Identifier: Apache-2.0
// More than 400 lines: one class, whose stages share a worker's session.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/strategy/consistency.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/rounds.hpp>
#include <chorale/strategy/parameter_server/server_update.hpp>
#include <chorale/strategy/parameter_server/session.hpp>
#include <chorale/strategy/parameter_server/shard.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/strategy/parameter_server/update.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// One server: holds a shard of the variables, and applies the workers' pushes to it with its own optimizer.
///
///   auto service = Server{at, Synchronous{}, optim::Adam{}, shards, variables.values};
///   service.serve();                                      until every worker has left, or is lost
///
/// keeps   a push is applied wholly, under one version, or not at all, and once, however often it is sent. A lost
///         worker is left out, and so is one that sends another message than is expected, where its loss concerns
///         it alone: FailureScope::peer. A request that no client sends is refused, and its sender is not served again
/// order   as Consistency defines it
/// cost    one thread; for each worker as many shards as it may have clocks in flight, and one for each version that is
///         read. The endpoint's memory() is used for values
/// throws  BadArgument from the constructor: shards, clipping or spares that do not fit; from serve() PeerLost when the
///         endpoint itself cannot continue
/// source  Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014
template <Consistency C, optim::Optimizer O, Endpoint E> class Server {
 public:
  /// at        endpoint of W workers, then servers; this rank is a server
  /// initial   the flat buffer of all variables, equal on all ranks
  /// updates   functions that workers may have called here
  Server(E& at, C, O rule, ShardLayout const& shards, Span<float const> initial, ParameterOptions options = {},
         std::vector<KnownUpdate> updates = {})
      : at_{&at}, options_{options}, known_{std::move(updates)},
        shard_{std::move(rule), shards, server_of(at, shards), initial, readable(at)}, rounds_{shards.workers()},
        reports_{shards.workers()}, update_{shard_, options.on_non_finite} {
    CHORALE_EXPECTS(C::spares < shards.workers(), "a round that " + std::to_string(C::spares) +
                                                      " workers may miss needs more than " +
                                                      std::to_string(shards.workers()));
    for (Rank w = 0; w < shards.workers(); ++w) sessions_.emplace_back();
    for (auto& session : sessions_) session.listen();
  }
  Server(Server const&)            = delete;
  Server& operator=(Server const&) = delete;

  void serve() {
    serve([] { return true; });
  }

  /// go_on     called between two messages; serve() returns if it is false, and may be called again
  template <std::predicate GoOn> void serve(GoOn const& go_on) {
    while (serves() && go_on()) {
      auto moved = closures_.run(shard_);
      for (Rank w = 0; w < workers(); ++w) moved |= look(w);
      if (moved) {
        idle_.busy();
        continue;
      }
      auto lost = false;
      for (Rank w = 0; w < workers(); ++w) {
        if (of(w).stage == Stage::gone || !knows_lost(*at_, rank_of(w))) continue;
        lose(w, why_lost(w));
        lost = true;
      }
      if (!lost && none_can_go_on()) refuse_all();
      else if (serves()) idle_.rest_at(*at_);
    }
  }

  /// Enqueues one change of related values: the serving thread calls f(values, slots) between two messages, as one
  /// version. May be called from any thread.
  void update(Closures::Closure f) { closures_.add(std::move(f)); }

  /// The shard, which may be used while nothing is served, or in an update.
  Shard<O>& shard() { return shard_; }
  ServerStatistics const& ledger() const { return ledger_; }

  /// Why each worker was lost.
  std::vector<std::string> const& losses() const { return losses_; }

 private:
  using Stage = typename Session<E>::Stage;

  static int server_of(E const& at, ShardLayout const& shards) {
    CHORALE_EXPECTS(at.size() == shards.ranks() && at.rank() >= shards.rank_of(0),
                    "rank " + std::to_string(at.rank()) + " of " + std::to_string(at.size()) + " serves " +
                        std::to_string(shards.workers()) + " workers with " + std::to_string(shards.servers()) +
                        " servers: workers come first, then servers");
    return at.rank() - shards.rank_of(0);
  }

  Span<float> slot(std::uint64_t i) { return shard_.slots().subspan(i * shard_.size(), shard_.size()); }
  int workers() const { return shard_.shards().workers(); }
  Rank rank_of(int worker) const { return shard_.shards().rank_of_worker(worker); }
  Session<E>& of(Rank worker) { return sessions_[static_cast<std::size_t>(worker)]; }
  bool serves() const {
    return std::ranges::any_of(sessions_, [](Session<E> const& s) { return s.stage != Stage::gone; });
  }
  /// True if each worker waits until another one has said more, after a turn in which nothing moved.
  bool none_can_go_on() const {
    return serves() && std::ranges::all_of(sessions_, [](Session<E> const& s) {
             return s.stage == Stage::begins || s.stage == Stage::answers || s.stage == Stage::gone;
           });
  }

  void refuse_all() {
    auto text = std::string{"no worker can go on: "};
    for (Rank w = 0; w < workers(); ++w)
      if (auto const& s = of(w); s.stage != Stage::gone)
        text += "worker " + std::to_string(w) + " waits " +
                (s.request.call == Call::total ? "until all have reported epoch " + std::to_string(s.request.epoch)
                                               : "for round " + std::to_string(clock())) +
                "; ";
    text.resize(text.size() - 2);
    for (auto& s : sessions_)
      if (s.stage != Stage::gone) s.refuse(text);
  }

  std::uint64_t clock() const { return C::rounds ? rounds_.now() : clock_; }

  /// Advances one worker's request; true if there was progress.
  bool look(Rank w) {
    auto& s = of(w);
    try {
      return step(w, s);
    } catch (std::exception const& error) {
      if (!is_of(error, w)) throw;  // this rank cannot go on
      lose(w, error.what());
      return true;
    }
  }

  /// True if an error is the loss of this worker, or the reason why the endpoint has lost it alone.
  bool is_of(std::exception const& error, Rank w) const {
    if (auto const* lost = dynamic_cast<PeerLost const*>(&error)) return lost->rank() == rank_of(w);
    return knows_lost(*at_, rank_of(w)) && !knows_lost(*at_, at_->rank());
  }

  std::string why_lost(Rank w) {
    try {
      at_->recv(rank_of(w), options_.tag, {}).wait();
    } catch (std::exception const& error) { return error.what(); }
    return "it is gone";
  }

  bool step(Rank w, Session<E>& s) {
    switch (s.stage) {
      case Stage::request:
        if (!arrived(w, s)) return false;
        accept(w, s);
        return true;
      case Stage::begins:
        if (!rounds_.may_begin(s.clock)) return false;
        await_payload(s);
        return true;
      case Stage::payload: {
        auto const bytes = s.in.bytes();
        if (!arrived(w, s)) return s.in.bytes() != bytes;
        complete(w, s);
        return true;
      }
      case Stage::answers:
        if (!may_answer(w, s)) return false;
        answer(s);
        s.stage = Stage::answer;
        [[fallthrough]];
      case Stage::answer: {
        auto const moved = s.out.advance(*at_, rank_of(w), options_.tag);
        if (!s.out.empty()) return moved;
        if (s.request.call == Call::leave || s.reply.outcome == Outcome::refused) end(w);
        else s.listen();
        return true;
      }
      case Stage::gone: break;
    }
    return false;
  }

  bool arrived(Rank w, Session<E>& s) {
    s.in.advance(*at_, rank_of(w), options_.tag);
    return s.in.empty();
  }

  void accept(Rank w, Session<E>& s) {
    auto const& r = s.request;
    s.reply       = {.sequence = r.sequence, .server = shard_.server()};
    auto wrong    = what_is_wrong(r, w, shard_.shards(), clock());
    if (wrong.empty() && r.incarnation < s.incarnation)
      wrong = "it is of start " + std::to_string(r.incarnation) + ", and start " + std::to_string(s.incarnation) +
              " was here";
    if (!wrong.empty()) return s.refuse(wrong);
    if ((r.call == Call::pull_slot || r.call == Call::assign_slot) && r.count >= static_cast<std::uint64_t>(O::slots))
      return s.refuse("it is about slot " + std::to_string(r.count) + " of an optimizer with " +
                      std::to_string(O::slots));
    if (r.incarnation > s.incarnation) s.last = 0;
    s.incarnation = r.incarnation;
    if (r.sequence > s.last + 1)
      return s.refuse("it is number " + std::to_string(r.sequence) + ", and " + std::to_string(s.last) +
                      " was before it");
    s.clock = clock();
    if (C::rounds && pushes(r.call) && !s.is_duplicate()) {
      s.clock = rounds_.clock_of(w, std::max(r.seen, r.turn));
      rounds_.skip_to(w, s.clock);
      close_rounds();
    }
    s.stage = Stage::begins;
    if (rounds_.may_begin(s.clock) || !C::rounds) await_payload(s);
  }

  void await_payload(Session<E>& s) {
    if (s.request.brings_values() && s.incoming.values.empty() && s.incoming.words.empty() && !spare_.empty()) {
      s.incoming = std::move(spare_.back());
      spare_.pop_back();
    }
    s.await_payload(shard_.shards(), shard_.server());
  }

  /// Handles a request that has arrived in full. A worker that fails waits while its memory is read.
  void complete(Rank w, Session<E>& s) {
    if constexpr (ReadsInPlace<E>) {
      if (s.request.place != 0) {
        {
          auto const held = at_->hold(shard_.size() * sizeof(float));
          if (!at_->lost(rank_of(w))) return take(w, s);
        }
        return lose(w, why_lost(w));
      }
    }
    take(w, s);
  }

  void take(Rank w, Session<E>& s) {
    auto const& r        = s.request;
    auto const duplicate = s.is_duplicate();
    s.reply.duplicate    = duplicate ? 1 : 0;
    s.stage              = Stage::answers;
    s.incoming.request   = r;
    s.widen(shard_.dense());
    auto wrong = s.find_placed(*at_, rank_of(w), shard_.shards(), shard_.server(), C::rounds || !shard_.takes_pieces());
    if (wrong.empty() && of_rows(r.call)) wrong = s.find_rows(shard_.shards(), shard_.server());
    if (wrong.empty() && r.brings_tables()) wrong = s.find_tables(shard_.shards(), shard_.server());
    if (!wrong.empty()) {
      if (pushes(r.call)) ++ledger_.refused;
      return s.refuse(wrong);
    }
    s.last = std::max(s.last, r.sequence);
    if (pushes(r.call) && duplicate) ++ledger_.duplicates;
    else if (pushes(r.call)) take_push(w, s);
    if (r.call == Call::report && !duplicate) {
      reports_.add(r);
      rounds_.report(w, r.epoch);
      close_rounds();
    }
    if (r.call == Call::assign && !duplicate)
      shard_.update([&](Span<float> values, Span<float>) {
        std::ranges::copy(s.incoming.values.floats(values.size()), values.begin());
      });
    if (r.call == Call::update) {
      if (!duplicate) wrong = call_update(s);
      if (!wrong.empty()) return s.refuse(wrong);
      s.report_update();
    }
    if (r.call == Call::assign_slot && !duplicate)
      std::ranges::copy(s.incoming.values.floats(shard_.size()), slot(r.count).begin());
    if (r.call == Call::assign_step && !duplicate) shard_.now.step = static_cast<std::int64_t>(r.version);
    if (r.call == Call::leave) {
      rounds_.end(w);
      close_rounds();
    }
  }

  /// Calls the function of an update with copies of the values that it names; they become the values as one version, if
  /// it does not throw. Returns an error text if the request is not valid, or an empty string.
  std::string call_update(Session<E>& s) {
    auto const& r    = s.request;
    auto const bytes = ConstBytes{s.incoming.words.bytes(r.count)};
    auto const found = std::ranges::find(known_, r.version, &KnownUpdate::key);
    auto ranges      = std::vector<Range>(r.index_bytes);
    auto const head  = ranges.size() * sizeof(Range);
    if (head != 0) std::memcpy(ranges.data(), bytes.data(), head);
    if (found == known_.end())
      return "this server has no update of that name, arguments and result among its " + std::to_string(known_.size());
    if (bytes.size() - head != found->argument_bytes) return "its update has other arguments";
    auto homes = std::vector<ShardLayout::Home const*>{};
    auto last  = ShardLayout::Found{};
    auto size  = std::size_t{0};
    for (auto const range : ranges) {
      homes.push_back(range.begin < range.end ? shard_.shards().home_of(range, last) : nullptr);
      if (homes.back() == nullptr || homes.back()->server != shard_.server())
        return "its update names values that are not all on server " + std::to_string(shard_.server());
      size += range.size();
      if (size > shard_.size()) return "its update names values twice";
    }
    auto copies     = std::vector<float>(size);
    auto values     = std::vector<Span<float>>{};
    auto const each = [&](auto&& f) {  // f(range, where it is in the shard, copy)
      auto rest = Span<float>{copies};
      for (std::size_t i = 0; i < ranges.size(); ++i, rest = rest.subspan(ranges[i - 1].size()))
        f(homes[i]->base + ranges[i].begin - homes[i]->flat.begin, rest.first(ranges[i].size()));
    };
    each([&](std::size_t at, Span<float> copy) {
      std::ranges::copy(shard_.values().subspan(at, copy.size()), copy.begin());
      values.push_back(copy);
    });
    s.thrown.reset();
    try {
      s.result = found->call(values, bytes.subspan(head));
    } catch (std::exception const& error) {
      s.thrown = error.what();
      return {};
    } catch (...) {  // the server continues, whatever it was
      s.thrown = "something that is no std::exception";
      return {};
    }
    shard_.update([&](Span<float> all, Span<float>) {
      each([&](std::size_t at, Span<float> copy) { std::ranges::copy(copy, all.subspan(at).begin()); });
    });
    return {};
  }

  /// Handles a push that has arrived in full, for the first time.
  void take_push(Rank w, Session<E>& s) {
    auto& reply = s.reply;
    if (s.request.fault != ServerFault::none) {
      auto const stops = options_.on_non_finite == NonFinite::stop;
      ++(stops ? ledger_.refused : ledger_.skipped);
      reply.outcome = stops ? Outcome::not_finite : Outcome::skipped;
      if (stops) return;
    } else if (C::rounds && rounds_.is_late(s.clock)) {
      ++ledger_.late;
      reply.outcome = Outcome::late;
    }
    if constexpr (C::rounds) {
      if (rounds_.is_late(s.clock)) return rounds_.drop(w, s.clock);
      rounds_.add(w, s.clock, std::move(s.incoming));
      s.incoming = {};
      close_rounds();
    } else {
      round_.push_back(std::move(s.incoming));
      update_.apply(round_, clock_++, ledger_);
      s.incoming = std::move(round_[0]);
      round_.clear();
    }
  }

  void close_rounds() {
    while (rounds_.close(round_)) {
      update_.apply(round_, rounds_.now() - 1, ledger_);
      for (auto& contribution : round_) spare_.push_back(std::move(contribution));
      round_.clear();
    }
  }

  bool may_answer(Rank w, Session<E> const& s) {
    if (s.reply.outcome == Outcome::refused || !update_.fault().empty()) return true;
    switch (s.request.call) {
      case Call::pull:
      case Call::pull_rows: return !C::rounds || rounds_.may_pull(w);
      case Call::push_and_pull: return !C::rounds || s.reply.outcome == Outcome::not_finite || rounds_.may_pull(w);
      case Call::total:
        return reports_.complete(s.request.epoch,
                                 [&](Rank rank) { return rank != w && of(rank).stage != Stage::gone; });
      default: return true;
    }
  }

  void answer(Session<E>& s) {
    auto const call = s.request.call;
    auto& reply     = s.reply;
    reply.version   = shard_.version();
    reply.clock     = clock();
    reply.sums[0]   = static_cast<double>(shard_.now.step);
    if (reply.outcome != Outcome::refused && !update_.fault().empty()) {
      reply.outcome = Outcome::not_finite;
      reply.say(update_.fault());
    }
    s.out.add(bytes_of(reply));
    if (reply.outcome == Outcome::refused || reply.outcome == Outcome::not_finite || reply.outcome == Outcome::failed)
      return;
    switch (call) {
      case Call::update: return s.send_copies(s.result, {});
      case Call::pull:
      case Call::push_and_pull:
        ++ledger_.pulls;
        if (s.request.version == shard_.version()) ++ledger_.unchanged;
        else if (shard_.knows_since(s.request.version)) s.send_changes(shard_);
        else s.send_values(shard_.snapshot(), shard_.shards(), shard_.server());
        return;
      case Call::pull_rows: ++ledger_.pulls; return s.send_rows(shard_.values());
      case Call::pull_slot: {
        auto copy = std::make_shared<Buffer>();
        std::ranges::copy(slot(s.request.count), copy->floats(shard_.size()).begin());
        return s.send_values(std::move(copy), shard_.shards(), shard_.server());
      }
      case Call::total:
        reply.sums = reports_.sum(s.request.epoch);
        return s.send_copies(reports_.reported(s.request.epoch), reports_.each(s.request.epoch));
      default: return;
    }
  }

  void lose(Rank w, std::string why) {
    auto& s = of(w);
    ++ledger_.lost;
    losses_.push_back("worker " + std::to_string(w) + " (rank " + std::to_string(rank_of(w)) + "): " + std::move(why));
    if (s.stage == Stage::begins || s.stage == Stage::payload) ledger_.cut_off += pushes(s.request.call) ? 1 : 0;
    end(w);
  }

  void end(Rank w) {
    auto& s = of(w);
    ledger_.bytes_in += s.in.bytes();
    ledger_.bytes_out += s.out.bytes();
    s.end();
    rounds_.end(w);
    close_rounds();
  }

  E* at_;
  ParameterOptions options_;
  std::vector<KnownUpdate> known_;
  Shard<O> shard_;
  Rounds<C> rounds_;
  Reports reports_;
  Update<O> update_;
  ServerStatistics ledger_;
  std::vector<std::string> losses_;
  std::uint64_t clock_ = 0;           // pushes applied, when rounds are not used
  std::vector<Session<E>> sessions_;  // [worker]
  std::vector<Contribution> round_;   // that is applied
  std::vector<Contribution> spare_;   // their memory is reused
  Idle idle_;
  Closures closures_;
};

}  // namespace chorale::parameter_server
