// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/half.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace chorale::parameter_server {

/// A worker's end of the connection to one server: one request at a time.
///
/// keeps   data is sent from, and received into, the caller's memory; runs that share a message are copied. Gradients
///         in memory() are not sent: the server reads them there until it replies
template <Endpoint E> class ServerConnection {
 public:
  ServerConnection(E& at, ShardLayout const& shards, ParameterOptions const& options, int server)
      : exchange_{at, shards.rank_of(server), options.tag}, shards_{&shards}, options_{options}, server_{server} {
    auto shared = std::size_t{0};
    for (auto const part : shards.messages(server)) shared += is_shared(part) ? part.size() : 0;
    shared_out_.resize(shared);
    shared_in_.resize(shared);
  }

  Request request;
  Reply reply;
  std::uint64_t version = 0, clock = 0;               // of the values that this worker has
  std::vector<std::byte> rows_in, rows_out, indices;  // used only if there are several servers
  std::vector<std::size_t> places;                    // [row of this server]: row of the caller
  std::vector<std::uint32_t> words_out;               // rows of tables of a push

  int server() const { return server_; }
  bool busy() const { return exchange_.busy(); }

  /// True if the reply brings the whole shard, tables included; else words_in() has the rows of tables that changed.
  bool brings_all() const { return reply.count != 0 && reply.words == 0; }
  Span<std::uint32_t const> words_in() const { return Span<std::uint32_t const>{words_in_}.first(reply.words); }

  std::size_t bytes() const { return exchange_.bytes(); }

  /// Returns the next request, to be filled before begin().
  Request& next(Call call) {
    request = {.layout      = shards_->fingerprint(),
               .sequence    = request.sequence + 1,
               .seen        = clock,
               .version     = version,
               .worker      = shards_->worker_at(exchange_.endpoint().rank()),
               .incarnation = options_.incarnation,
               .call        = call};
    exchange_.request().add(bytes_of(request));
    values_in_ = {};
    bytes_in_  = {};
    return request;
  }

  /// Sends the shard's part of a flat buffer with the request.
  void send_values(Span<float const> flat) {
    if (pushes(request.call) && options_.pushed_as == PushedAs::bf16) return send_halves(flat);
    if (pushes(request.call) && is_placed(flat)) return;
    auto to = Span<float>{shared_out_};
    for (auto const part : pushes(request.call) ? shards_->dense_messages(server_) : shards_->messages(server_))
      if (is_shared(part)) {
        shards_->pieces(server_, part, [&](Range from, Range in_shard) {
          std::ranges::copy(flat.subspan(from.begin, from.size()),
                            to.begin() + static_cast<std::ptrdiff_t>(in_shard.begin - part.begin));
        });
        exchange_.request().add(std::as_bytes(to.first(part.size())));
        to = to.subspan(part.size());
      } else {
        shards_->pieces(server_, part, [&](Range from, Range) {
          exchange_.request().add(std::as_bytes(flat.subspan(from.begin, from.size())));
        });
      }
  }
  void send(ConstBytes message) { exchange_.request().add_cut(message); }

  /// Sends words_out, after the gradients of a push.
  void send_words() {
    request.count = words_out.size();
    send(std::as_bytes(Span<std::uint32_t const>{words_out}));
  }

  /// True if the server can read the gradients in place: the request then names where they are stored.
  bool is_placed(Span<float const> gradients) {
    return (request.place = place_of(exchange_.endpoint(), gradients)) != 0;
  }

  /// Sets the destination of the values of the reply: the shard's part of a flat buffer, or bytes.
  void receive_values(Span<float> flat) { values_in_ = flat; }
  void receive(Bytes into) { bytes_in_ = into; }

  /// Starts to send the request.
  void begin() {
    exchange_.begin(bytes_of(reply));
    advance();
  }

  /// Advances the request; true if there was progress.
  ///
  /// throws  like E; Disagreement when the reply is not valid
  bool advance() {
    auto const was_busy = busy();
    auto const moved    = exchange_.advance([this] {
      check();
      if (reply.count != 0 || reply.words != 0) await_values();
    });
    if (was_busy && !busy()) spread();
    return moved;
  }

 private:
  bool is_shared(Range part) const {
    auto runs = 0;
    shards_->pieces(server_, part, [&](Range, Range) { ++runs; });
    return runs > 1;
  }

  void send_halves(Span<float const> flat) {
    request.as = PushedAs::bf16;
    halves_.resize(shards_->dense(server_));
    for (auto const part : shards_->dense_messages(server_)) {
      shards_->pieces(server_, part, [&](Range from, Range in_shard) {
        auto const values = flat.subspan(from.begin, from.size());
        auto* const to    = halves_.data() + in_shard.begin;
        for (std::size_t i = 0; i < values.size(); ++i) to[i] = bf16{values[i]};
      });
      exchange_.request().add(std::as_bytes(Span<bf16 const>{halves_}.subspan(part.begin, part.size())));
    }
  }

  void check() const {
    auto const who = [&] { return sentence("server {} (rank {})", server_, exchange_.peer()); };
    if (reply.magic != parameter_magic || reply.server != server_ || reply.sequence != request.sequence)
      throw Disagreement{Fault::collective_mismatch,
                         sentence("{} sent what is no reply to request {}.", who(), request.sequence)};
    if (reply.outcome == Outcome::refused)
      throw Disagreement{
          Fault::model_mismatch,
          sentence("{} refused request {} of worker {}: {}.", who(), request.sequence, request.worker, reply.said()),
          "the same model, shards and options on all workers and servers."};
    auto const expected = !values_in_.empty() ? shards_->elements(server_)
                          : request.call == Call::total || request.call == Call::update
                              ? bytes_in_.size()
                              : bytes_in_.size() / sizeof(float);
    auto const dense    = shards_->dense(server_);  // of a reply without what has not changed
    auto const none = reply.count == 0 && (reply.outcome == Outcome::not_finite || reply.outcome == Outcome::failed ||
                                           (!values_in_.empty() && reply.version == request.version));
    if (reply.words == 0 ? !none && reply.count != expected : values_in_.empty() || reply.count != dense)
      throw Disagreement{Fault::model_mismatch,
                         sentence("{} sends {} values where {} were asked for.", who(), reply.count, expected)};
    if (reply.words > shards_->tables().size() + 2 * shards_->elements(server_))
      throw Disagreement{Fault::model_mismatch, sentence("{} sends {} words of rows of tables.", who(), reply.words)};
  }

  void await_values() {
    if (values_in_.empty()) return exchange_.reply().add_cut(bytes_in_);
    auto to = Span<float>{shared_in_};
    for (auto const part : messages_in())
      if (is_shared(part)) {
        exchange_.reply().add(std::as_bytes(to.first(part.size())));
        to = to.subspan(part.size());
      } else {
        shards_->pieces(server_, part, [&](Range into, Range) {
          exchange_.reply().add(std::as_bytes(values_in_.subspan(into.begin, into.size())));
        });
      }
    exchange_.reply().add_growing(reply.words * sizeof(std::uint32_t), words_in_.size() * sizeof(std::uint32_t),
                                  growing(words_in_));
  }

  /// Messages of the values of the reply.
  Span<Range const> messages_in() const {
    return brings_all() ? shards_->messages(server_) : shards_->dense_messages(server_);
  }

  /// Copies the runs that shared a message to their places.
  void spread() {
    if (reply.count == 0 || values_in_.empty()) return;
    auto from = Span<float const>{shared_in_};
    for (auto const part : messages_in()) {
      if (!is_shared(part)) continue;
      shards_->pieces(server_, part, [&](Range into, Range in_shard) {
        std::ranges::copy(from.subspan(in_shard.begin - part.begin, in_shard.size()),
                          values_in_.begin() + static_cast<std::ptrdiff_t>(into.begin));
      });
      from = from.subspan(part.size());
    }
  }

  RequestReply<E> exchange_;
  ShardLayout const* shards_;
  ParameterOptions options_;
  int server_;
  std::vector<float> shared_out_, shared_in_;
  std::vector<std::uint32_t> words_in_;  // rows of tables of a reply; only grows
  std::vector<bf16> halves_;             // of a push, laid out like the shard
  Span<float> values_in_;
  Bytes bytes_in_;
};

/// A worker's connections to all servers.
///
/// keeps   after a failure no other rank accesses memory of operations in flight, and no further request is sent
template <Endpoint E> class ServerConnections {
 public:
  using Link = ServerConnection<E>;

  ServerConnections(E& at, ShardLayout const& shards, ParameterOptions const& options)
      : at_{&at}, shards_{&shards}, tag_{options.tag} {
    links_.reserve(static_cast<std::size_t>(shards.servers()));
    for (int s = 0; s < shards.servers(); ++s) links_.emplace_back(at, shards, options, s);
  }

  std::size_t size() const { return links_.size(); }
  Link& operator[](std::size_t server) { return links_[server]; }
  auto begin() { return links_.begin(); }
  auto end() { return links_.end(); }

  /// Sends one request to each of some servers, and waits for the replies: ask(link) makes the request.
  ///
  /// servers how many; `from` the first of them
  /// begun   called when the first messages to all are in flight
  /// throws  PeerLost that names the shard; Disagreement; BadArgument after an earlier call threw one of these
  template <class Ask, class Begun> void exchange(Ask&& ask, std::size_t servers, Begun&& begun, std::size_t from = 0) {
    CHORALE_EXPECTS(!broken_, "this client lost a server, or was refused, and can be used no more");
    auto const all = Span<Link>{links_}.subspan(from, servers);
    broken_        = true;
    try {
      for (auto& link : all) ask(link);
      for (auto& link : all)
        for (auto const& other : links_) link.request.turn = std::max(link.request.turn, other.clock);
      for (auto& link : all) link.begin();
      begun();
      finish(all);
    } catch (PeerLost const& lost) {
      fail(*at_, "it lost a parameter server");  // before memory is freed that others may use
      throw_lost(lost);
    } catch (std::exception const& error) {
      fail(*at_, error.what());
      throw;
    }
    broken_ = false;
  }

 private:
  void finish(Span<Link> all) {
    auto idle = Idle{};
    while (std::ranges::any_of(all, &Link::busy)) {
      auto moved = false;
      for (auto& link : all) moved |= link.advance();
      if (moved) {
        idle.busy();
        continue;
      }
      for (auto const& link : links_) {  // servers without a request may be lost, too
        if (link.busy() || link.request.call == Call::leave) continue;
        if (auto const rank = shards_->rank_of(link.server()); knows_lost(*at_, rank))
          at_->recv(rank, tag_, {}).wait();  // throws the reason
      }
      idle.rest_at(*at_);
    }
  }

  [[noreturn]] void throw_lost(PeerLost const& lost) const {
    auto const server = lost.rank() - shards_->rank_of(0);
    if (server < 0 || server >= shards_->servers()) throw lost;
    auto loss = lost.loss();
    if (loss.fault == Fault::evicted) {
      loss.reason = sentence("server {} of {} (rank {}) has evicted this worker{}", server, shards_->servers(),
                             lost.rank(), loss.reason.empty() ? "" : ": " + loss.reason);
      throw PeerLost{at_->rank(), loss, "a restart: the others went on without this worker."};
    }
    loss.reason = sentence("server {} of {} (rank {}) is gone; it held {} of {} bytes of the variables{}", server,
                           shards_->servers(), lost.rank(), shards_->elements(server) * sizeof(float),
                           shards_->elements() * sizeof(float), loss.reason.empty() ? "" : ": " + loss.reason);
    throw PeerLost{at_->rank(), loss, "a restart of all ranks from the last checkpoint."};
  }

  E* at_;
  ShardLayout const* shards_;
  Tag tag_;
  std::vector<Link> links_;  // [server]
  bool broken_ = false;
};

}  // namespace chorale::parameter_server
