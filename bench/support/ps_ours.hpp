// SPDX-License-Identifier: Apache-2.0
//
// The parameter server of the library, and the least that its bytes take: two workers and servers, processes of this
// host over loopback TCP.
#pragma once

#include "bare_sockets.hpp"

#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// What all contenders do: the same numbers as in ps_peer.py.
struct PsCase {
  std::string name;   // push_dense, pull_dense, push_rows, ..
  std::size_t bytes;  // of one worker's call; 4: an empty one

  bool pushes() const { return name.starts_with("push"); }
  bool is_dense() const { return name.ends_with("dense"); }
};

inline constexpr int ps_workers            = 2;
inline constexpr std::size_t ps_dense      = 16 << 20;  // floats: 64 MiB
inline constexpr std::size_t ps_width      = 64;        // floats of a row
inline constexpr std::size_t ps_table_rows = 200'000;
inline constexpr std::size_t ps_rows       = 20'480;  // in one call

inline int calls_of_block(PsCase const& what) {
  return static_cast<int>(std::clamp<std::size_t>((128 << 20) / what.bytes, 1, 200));
}

/// How often blocks_of() calls.
inline int calls_of(PsCase const& what) {
  auto const repeats = Repeats{what.bytes};
  return (repeats.warm_up() + repeats.blocks) * calls_of_block(what);
}

/// Blocks of calls of one worker, after a quarter as many of warm-up.
template <class Call> Times blocks_of(PsCase const& what, Call&& call) {
  auto const repeats = Repeats{what.bytes};
  auto const calls   = calls_of_block(what);
  auto times         = Times{};
  for (int block = -repeats.warm_up(); block < repeats.blocks; ++block) {
    auto const start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (block >= 0) times.push_back(seconds * 1e6 / calls);
  }
  return times;
}

/// Memory of a worker: of its endpoint, where that has some, as a Trainer takes it for gradients.
class Floats {
 public:
  template <class E> Floats(E& at, std::size_t most) {
    if constexpr (requires { at.memory(); }) {
      free_ = {reinterpret_cast<float*>(at.memory().data()), at.memory().size() / sizeof(float)};
      expect(free_.size() >= most);
    } else {
      own_.resize(most);
      free_ = own_;
    }
  }

  chorale::Span<float> next(std::size_t n) {
    auto const first = free_.first(n);
    free_            = free_.subspan(n);
    return first;
  }

 private:
  std::vector<float> own_;
  chorale::Span<float> free_;
};

template <class E>
Times ps_worker(E& at, chorale::parameter_server::ShardLayout const& shards, PsCase const& what,
                chorale::parameter_server::RowTable const& table) {
  using namespace chorale;
  auto client     = parameter_server::Client{at, shards};
  auto const size = shards.extent() + plan::trailer;
  auto memory     = Floats{at, 3 * size + ps_rows * ps_width};
  auto values = memory.next(size), other = memory.next(size), gradients = memory.next(size);
  auto const rows                 = memory.next(ps_rows * ps_width);
  StepHeader{gradients}.rows()    = 64;
  StepTrailer{gradients}.summed() = 1;  // looked at during backward
  auto indices                    = std::vector<std::uint32_t>(ps_rows);
  for (std::size_t i = 0; i < ps_rows; ++i)
    indices[i] = static_cast<std::uint32_t>(Random{1, static_cast<std::uint64_t>(at.rank())}.below(i, ps_table_rows));
  auto const of_rows = Span<std::uint32_t const>{indices};
  client.pull({values, {}});
  client.report(0, std::vector{1.0});
  client.total(0);  // both are there
  return blocks_of(what, [&] {
    if (what.name == "empty") return client.pull({values, {}});  // nothing is newer
    if (what.name == "push_dense") client.push({gradients, {}, {}}, 0);
    if (what.name == "push_rows") client.push_rows(table, of_rows, Span<float const>{rows}, 64, 0);
    if (what.name == "pull_rows") client.pull_rows(table, of_rows, rows);
    if (what.name != "pull_dense") return;
    client.pull({other, {}});  // another buffer: all of it travels
    std::swap(values, other);
  });
}

/// Microseconds of a call when both workers call at once.
///
/// transport   whose ranks fail apart, as ParameterServerStrategy has it
template <class Transport> double our_ps(PsCase const& what, int servers, Transport const& transport) {
  using namespace chorale;
  auto const of_rows = what.name.ends_with("rows");
  auto const units   = of_rows ? ps_table_rows : what.name == "empty" ? std::size_t{16} : ps_dense;
  auto const unit    = of_rows ? ps_width : std::size_t{1};
  auto const table   = parameter_server::RowTable{plan::header, ps_table_rows, ps_width};
  auto runs          = std::vector<std::vector<Range>>{};
  for (int s = 0; s < servers; ++s) {
    auto const part = share(units, s, servers);
    runs.push_back({{plan::header + part.begin * unit, plan::header + part.end * unit}});
  }
  auto const shards = parameter_server::ShardLayout{ps_workers, runs};
  return on_processes(ps_workers + servers, what.bytes, Cores::any, [&](int rank) {
    auto at = std::move(transport.connect(Group{ps_workers + servers, {rank}})[0]);
    if (rank < ps_workers) return ps_worker(at, shards, what, table);
    auto const initial = std::vector<float>(shards.extent());
    auto service = parameter_server::Server{at, Asynchronous{}, optim::SGD{.learning_rate = 0.01F}, shards, initial};
    service.serve();
    return Times{};
  });
}

inline double ps_over_tcp(PsCase const& what, int servers) {
  auto const addresses = chorale::free_loopback_addresses(ps_workers + servers);
  return our_ps(what, servers, chorale::TcpTransport{.addresses = addresses, .failures = chorale::FailureScope::peer});
}

inline double ps_over_shared_memory(PsCase const& what, int servers) {
  auto const name = "bench-ps-" + std::to_string(getpid());
  return our_ps(
      what, servers,
      chorale::SharedMemoryTransport{.name = name, .arena = 256 << 20, .failures = chorale::FailureScope::peer});
}

/// A parameter server by hand: sockets, and what must be done with the bytes. No frames, checks, versions or limits of
/// time. A worker pushes its gradients and waits for a byte from each server, or sends a byte and receives the values.
class WorkedSockets {
 public:
  static constexpr std::size_t most = 256 << 10;  // bytes a call: they stay in the cache

  WorkedSockets(BareMesh const& mesh, PsCase const& what, int servers, int rank)
      : mesh_{&mesh}, servers_{servers}, rank_{rank}, pushes_{what.pushes()}, data_(what.bytes / sizeof(float)),
        came_(most / sizeof(float)) {}

  /// One call of a worker.
  void call() {
    auto talks = std::vector<Talk>{};
    for (int s = 0; s < servers_; ++s) {
      auto const part = chorale::share(data_.size(), s, servers_);
      auto const mine = std::as_writable_bytes(chorale::Span<float>{data_}.subspan(part.begin, part.size()));
      talks.push_back({mesh_->between(rank_, ps_workers + s), mine, {}, {}});
    }
    for (int idle = 0, open = servers_; open > 0; ++idle) {
      if (idle > 2) sched_yield();
      for (auto& one : talks) {
        if (one.over) continue;
        auto const moved = pushes_ ? send_then_byte(one) : byte_then_receive(one);
        idle             = moved ? 0 : idle;
        open -= one.over ? 1 : 0;
      }
    }
  }

  /// Serves so many calls of each worker.
  void serve(int calls) {
    auto const part = chorale::share(data_.size(), rank_ - ps_workers, servers_);
    auto const mine = chorale::Span<float>{data_}.subspan(part.begin, part.size());
    auto talks      = std::vector<Talk>{};
    for (int w = 0; w < ps_workers; ++w)
      talks.push_back({mesh_->between(rank_, w), std::as_writable_bytes(mine), {}, {}});
    auto left = std::vector<int>(talks.size(), calls);
    for (int idle = 0, open = ps_workers * calls; open > 0; ++idle) {
      if (idle > 2) sched_yield();
      for (std::size_t w = 0; w < talks.size(); ++w) {
        auto& one = talks[w];
        if (left[w] == 0) continue;
        if (pushes_ ? add_then_byte(one, mine) : byte_then_send(one)) idle = 0;
        if (!one.over) continue;
        one = {one.socket, one.bytes, {}, {}};
        --left[w];
        --open;
      }
    }
  }

 private:
  struct Talk {
    int socket;
    chorale::Bytes bytes;
    std::size_t moved;
    bool asked, over = false;
  };

  static std::size_t moved(ssize_t n) {
    expect(n > 0 || (n < 0 && errno == EAGAIN));
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  static std::size_t receive(int socket, void* to, std::size_t n) { return moved(recv(socket, to, n, 0)); }
  static std::size_t give(int socket, void const* from, std::size_t n) {
    return moved(send(socket, from, n, MSG_NOSIGNAL));
  }

  static bool send_some(Talk& talk) {
    auto const n = give(talk.socket, talk.bytes.data() + talk.moved, std::min(most, talk.bytes.size() - talk.moved));
    talk.moved += n;
    return n != 0;
  }
  static bool byte_in(Talk& talk) {
    auto byte = std::byte{};
    return receive(talk.socket, &byte, 1) == 1;
  }
  static bool byte_out(Talk& talk) {
    auto const byte = std::byte{1};
    return give(talk.socket, &byte, 1) == 1;
  }

  static bool send_then_byte(Talk& talk) {
    if (talk.moved < talk.bytes.size()) return send_some(talk);
    return talk.over = byte_in(talk);
  }
  static bool byte_then_receive(Talk& talk) {
    if (!talk.asked) return talk.asked = byte_out(talk);
    auto const n = receive(talk.socket, talk.bytes.data() + talk.moved, std::min(most, talk.bytes.size() - talk.moved));
    talk.moved += n;
    talk.over = talk.moved == talk.bytes.size();
    return n != 0;
  }
  static bool byte_then_send(Talk& talk) {
    if (!talk.asked) return talk.asked = byte_in(talk);
    auto const any = send_some(talk);
    talk.over      = talk.moved == talk.bytes.size();
    return any;
  }
  /// SGD as the numbers arrive: values -= 0.01 gradients.
  bool add_then_byte(Talk& talk, chorale::Span<float> values) {
    if (talk.moved == talk.bytes.size()) return talk.over = byte_out(talk);
    auto const done = talk.moved / sizeof(float), odd = talk.moved % sizeof(float);
    auto* const to = reinterpret_cast<std::byte*>(came_.data());
    if (odd != 0) std::memcpy(to, &split_[static_cast<std::size_t>(talk.socket) % split_.size()], odd);
    auto const n             = receive(talk.socket, to + odd, std::min(most - odd, talk.bytes.size() - talk.moved));
    auto const whole         = (odd + n) / sizeof(float);
    auto* __restrict x       = values.data() + done;
    auto const* __restrict g = came_.data();
    for (std::size_t i = 0; i < whole; ++i) x[i] -= 0.01F * g[i];
    std::memcpy(&split_[static_cast<std::size_t>(talk.socket) % split_.size()], to + whole * sizeof(float),
                (odd + n) % sizeof(float));
    talk.moved += n;
    return n != 0;
  }

  BareMesh const* mesh_;
  int servers_, rank_;
  bool pushes_;
  std::vector<float> data_, came_;
  std::array<float, 1'024> split_{};  // [socket] a float that has arrived in part
};

/// Microseconds of a dense call by a parameter server by hand.
inline double worked_ps(PsCase const& what, int servers) {
  auto const mesh = BareMesh{ps_workers + servers};
  return on_processes(ps_workers + servers, what.bytes, Cores::any, [&](int rank) {
    auto sockets = WorkedSockets{mesh, what, servers, rank};
    if (rank < ps_workers) return blocks_of(what, [&] { sockets.call(); });
    sockets.serve(calls_of(what));
    return Times{};
  });
}

/// The same bytes over sockets by hand, between two workers and one that takes or gives them: the medium's limit.
inline double bare_ps(PsCase const& what) {
  auto const mesh = BareMesh{ps_workers + 1};
  return on_processes(ps_workers + 1, what.bytes, Cores::any, [&](int rank) {
    auto data            = std::vector<std::byte>(what.bytes * (rank == ps_workers ? ps_workers : 1));
    auto const turns     = what.name == "empty" ? 2 : 1;  // there and back
    auto const to_server = what.pushes() || what.name == "empty";
    auto const move      = [](int socket, bool sends, std::byte* at, std::size_t left) {
      auto const n   = std::min<std::size_t>(left, 256 << 10);
      auto const got = sends ? send(socket, at, n, MSG_NOSIGNAL) : recv(socket, at, n, 0);
      expect(got > 0 || (got < 0 && errno == EAGAIN));
      return got > 0 ? static_cast<std::size_t>(got) : 0;
    };
    return blocks_of(what, [&] {
      for (int turn = 0; turn < turns; ++turn) {
        auto const peers = rank == ps_workers ? ps_workers : 1;
        auto const sends = (rank == ps_workers) != (to_server == (turn == 0));
        auto left        = std::vector<std::size_t>(static_cast<std::size_t>(peers), what.bytes);
        for (int idle = 0; std::accumulate(left.begin(), left.end(), std::size_t{0}) != 0; ++idle) {
          if (idle > 2) sched_yield();  // three processes, two cores
          for (int p = 0; p < peers; ++p) {
            auto& mine = left[static_cast<std::size_t>(p)];
            if (mine == 0) continue;
            auto const end  = static_cast<std::size_t>(p + 1) * what.bytes;
            auto const with = rank == ps_workers ? p : ps_workers;
            auto const n    = move(mesh.between(rank, with), sends, &data[end - mine], mine);
            mine -= n;
            idle = n != 0 ? 0 : idle;
          }
        }
      }
    });
  });
}

}  // namespace bench
