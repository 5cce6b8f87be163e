// SPDX-License-Identifier: Apache-2.0
//
// Microseconds of an all-reduce over threads, shared memory and TCP, beside Gloo, MPI and bare loops.
//
//   tools/run bench/reduce --json
//
// Sums of float32 in place, 1 KiB to 256 MiB, 2 and 4 ranks on this host. Each contender runs in processes of its own,
// in turn, several rounds; a row has the medians, each of the fastest of its kind: ours, the peers', and of the bare
// loops, which are the limit.
//
// Microseconds: calls follow one another without a pause, some of them (1 to 100) form a block; a block's time divided
// by its calls, the slowest rank's, the median over blocks, after a quarter as many blocks of warm-up. Before that each
// rank checks one sum element by element. The timed buffers hold zeros and are not filled again.
//
//   threads            buffers anywhere in one process     limit: the same two meetings and one pass, by hand
//   shared_memory      buffers in the transport's arena    limit: the same, in processes; peer: MPI, its own buffers
//   shared_memory_own  buffers of the program's own        limit: copied in, summed and copied out by hand; peer: MPI
//   tcp                buffers anywhere, over loopback     limit: ring or exchange over sockets, by hand; peer: both
//   sent               messages and bytes of the busiest rank in one all-reduce, beside what its schedule and cost()
//                      say: counted over threads, the same over every transport
//
// The row reduce/agreement has nanoseconds: what it costs that threads compare which operation they are in, for each
// operation, each message, and each call of an endpoint. The rows of threads contain it.
//
// Gloo needs Debian's libgloo-dev. MPI is every library whose mpirun CHORALE_MPI lists, paths with colons between them,
// or else the mpirun of PATH: Open MPI, MPICH, Intel MPI, from Debian, PyPI or by hand. The program compiles
// bench/support/mpi_peer.cpp for each. What is missing is named and left out.
#include "support/agreement_cost.hpp"
#include "support/bare_direct.hpp"
#include "support/bare_sockets.hpp"
#include "support/gloo_reduce.hpp"
#include "support/mpi_peers.hpp"
#include "support/our_reduce.hpp"

#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/counting.hpp>

#include <CLI/CLI.hpp>

#include <functional>
#include <iostream>
#include <map>
#include <optional>

namespace {

using Measured = std::function<double(int ranks, std::size_t bytes)>;  // microseconds

enum class Kind { ours, peer, limit };

struct Contender {
  std::string transport;
  std::string name;  // and its algorithm
  Kind kind;
  Measured run;                                                           // by this program; else none
  std::function<std::string(int ranks, std::size_t bytes)> command = {};  // by another program

  std::string key() const { return transport + "/" + name; }
};

void add_ours_and_limits(std::vector<Contender>& all) {
  using namespace chorale;
  all.push_back({"threads", "DirectAllReduce", Kind::ours, bench::over_threads<DirectAllReduce>});
  all.push_back({"threads", "loop", Kind::limit, bench::bare_direct_threads});

  all.push_back({"shared_memory", "DirectAllReduce", Kind::ours, bench::over_shared_memory<DirectAllReduce>});
  all.push_back({"shared_memory", "loop", Kind::limit, bench::bare_direct_processes});

  all.push_back({"shared_memory_own", "CopiedAllReduce", Kind::ours, bench::over_own_buffers<CopiedAllReduce>});
  all.push_back({"shared_memory_own", "RingAllReduce", Kind::ours, bench::over_own_buffers<RingAllReduce>});
  all.push_back({"shared_memory_own", "RecursiveDoublingAllReduce", Kind::ours,
                 bench::over_own_buffers<RecursiveDoublingAllReduce>});
  all.push_back({"shared_memory_own", "PairwiseAllReduce", Kind::ours, bench::over_own_buffers<PairwiseAllReduce>});
  all.push_back({"shared_memory_own", "copies", Kind::limit, bench::bare_copies_processes});

  all.push_back({"tcp", "RingAllReduce", Kind::ours, bench::over_tcp<RingAllReduce>});
  all.push_back({"tcp", "RecursiveDoublingAllReduce", Kind::ours, bench::over_tcp<RecursiveDoublingAllReduce>});
  all.push_back({"tcp", "HalvingDoublingAllReduce", Kind::ours, bench::over_tcp<HalvingDoublingAllReduce>});
  all.push_back({"tcp", "PairwiseAllReduce", Kind::ours, bench::over_tcp<PairwiseAllReduce>});
  all.push_back({"tcp", "AutoAllReduce", Kind::ours, bench::over_tcp<AutoAllReduce>});
  using How = bench::BareSockets::How;
  for (auto const& [name, how] : {std::pair{"ring", How::ring}, std::pair{"exchange", How::exchange}})
    all.push_back({"tcp", name, Kind::limit,
                   [how = how](int ranks, std::size_t bytes) { return bench::bare_sockets(how, ranks, bytes); }});
}

void add_gloo([[maybe_unused]] std::vector<Contender>& all) {
#ifdef CHORALE_HAVE_GLOO
  for (auto const& algorithm : bench::gloo_algorithms)
    all.push_back({"tcp", "gloo " + algorithm, Kind::peer,
                   [=](int ranks, std::size_t bytes) { return bench::gloo_reduce(algorithm, ranks, bytes); }});
#endif
}

void add_mpi(std::vector<Contender>& all, bench::MpiPeers const& mpi) {
  for (std::string const transport : {"tcp", "shared_memory", "shared_memory_own"})
    for (auto const& peer : mpi.over(transport))
      all.push_back({transport, peer.name, Kind::peer, {}, [peer](int ranks, std::size_t bytes) {
                       return peer.command(ranks, bytes);
                     }});
}

void say_what_is_missing() {
#ifndef CHORALE_HAVE_GLOO
  std::fprintf(stderr, "SKIPPED: Gloo: it was absent when this was built. Try: apt-get install libgloo-dev\n");
#endif
}

struct Options {
  std::vector<int> ranks{2, 4};
  std::size_t largest = 256 << 20;  // bytes
  int rounds          = 3;
  std::string only    = {};  // a transport
  bool json           = false;
  bool all            = false;
};

/// Microseconds of each contender, [contender]: medians over the rounds.
std::vector<double> in_turn(std::vector<Contender> const& contenders, int ranks, std::size_t bytes, int rounds) {
  auto times = std::vector<std::vector<double>>(contenders.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      auto const& who = contenders[i];
      auto const text =
          bench::output_of(who.command ? who.command(ranks, bytes)
                                       : "'" + bench::this_program() + "' --measure '" + who.key() + "' --ranks " +
                                             std::to_string(ranks) + " --bytes " + std::to_string(bytes));
      times[i].push_back(bench::number_after(text, "microseconds"));
    }
  auto medians = std::vector<double>{};
  for (auto const& each : times) medians.push_back(bench::median(each));
  return medians;
}

/// The fastest contender of a kind, if there is one of that kind.
std::optional<std::size_t> fastest(std::vector<Contender> const& contenders, std::vector<double> const& times,
                                   Kind kind) {
  auto found = std::optional<std::size_t>{};
  for (std::size_t i = 0; i < contenders.size(); ++i)
    if (contenders[i].kind == kind && (!found || times[i] < times[*found])) found = i;
  return found;
}

void print(std::vector<Contender> const& contenders, std::vector<double> const& times, int ranks, std::size_t bytes,
           Options const& options) {
  auto const ours = fastest(contenders, times, Kind::ours).value();
  auto row        = bench::Row{"reduce/" + contenders[ours].transport};
  row.add("transport", contenders[ours].transport)
      .add("algorithm", contenders[ours].name)
      .add("ranks", ranks, "%.0f")
      .add("bytes", static_cast<double>(bytes), "%.0f")
      .add("microseconds", times[ours]);
  if (auto const peer = fastest(contenders, times, Kind::peer))
    row.add("peer", contenders[*peer].name)
        .add("peer_microseconds", times[*peer])
        .add("speedup", times[*peer] / times[ours], "%.2f");
  if (auto const limit = fastest(contenders, times, Kind::limit))
    row.add("limit", contenders[*limit].name)
        .add("limit_microseconds", times[*limit])
        .add("ratio_to_limit", times[ours] / times[*limit], "%.2f");
  row.print(options.json);
  if (!options.all) return;
  for (std::size_t i = 0; i < contenders.size(); ++i)
    bench::Row{"reduce/" + contenders[i].key()}
        .add("ranks", ranks, "%.0f")
        .add("bytes", static_cast<double>(bytes), "%.0f")
        .add("microseconds", times[i])
        .print(options.json);
}

/// What the busiest rank sends in one all-reduce by R. Bytes that the number of ranks divides, in one lane.
template <class R> void print_sent(std::string const& algorithm, int ranks, std::size_t bytes, bool json) {
  using namespace chorale;
  auto endpoints = Counting<LocalTransport>{}.connect(Group::all_local(ranks));
  auto buffers   = std::vector<std::vector<float>>(endpoints.size(), std::vector<float>(bytes / sizeof(float)));
  {
    auto threads = std::vector<NamedThread>{};
    for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
      threads.emplace_back("rank " + std::to_string(rank),
                           [&, rank] { R{}.all_reduce(endpoints[rank], Span<float>{buffers[rank]}, Op::sum); });
  }
  auto sent = Sent{}, planned = sent;
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const mine = endpoints[static_cast<std::size_t>(rank)].sent();
    sent            = {std::max(sent.messages, mine.messages), std::max(sent.bytes, mine.bytes)};
    auto said       = Sent{2, R::cost(ranks, bytes).bytes};  // in place: all have exposed, all have left
    if constexpr (Schedule<R>) said = traffic<R>(rank, ranks, bytes / sizeof(float), sizeof(float));
    planned = {std::max(planned.messages, said.messages), std::max(planned.bytes, said.bytes)};
  }
  bench::Row{"reduce/sent"}
      .add("algorithm", algorithm)
      .add("ranks", ranks, "%.0f")
      .add("bytes", static_cast<double>(bytes), "%.0f")
      .add("messages", sent.messages, "%.0f")
      .add("planned_messages", planned.messages, "%.0f")
      .add("sent_bytes", static_cast<double>(sent.bytes), "%.0f")
      .add("planned_bytes", static_cast<double>(planned.bytes), "%.0f")
      .add("cost_bytes", static_cast<double>(R::cost(ranks, bytes).bytes), "%.0f")
      .add("cost_steps", R::cost(ranks, bytes).steps, "%.0f")
      .print(json);
}

void print_all_sent(Options const& options) {
  using namespace chorale;
  for (int const ranks : options.ranks) {
    auto const bytes = static_cast<std::size_t>(ranks) * 4'096;
    print_sent<DirectAllReduce>("DirectAllReduce", ranks, bytes, options.json);
    print_sent<RingAllReduce>("RingAllReduce", ranks, bytes, options.json);
    print_sent<RecursiveDoublingAllReduce>("RecursiveDoublingAllReduce", ranks, bytes, options.json);
    print_sent<HalvingDoublingAllReduce>("HalvingDoublingAllReduce", ranks, bytes, options.json);
    print_sent<PairwiseAllReduce>("PairwiseAllReduce", ranks, bytes, options.json);
    print_sent<TreeAllReduce>("TreeAllReduce", ranks, bytes, options.json);
    print_sent<DoubleTreeAllReduce>("DoubleTreeAllReduce", ranks, bytes, options.json);
    print_sent<ReduceToOne>("ReduceToOne", ranks, bytes, options.json);
  }
}

void report(std::vector<Contender> const& all, Options const& options) {
  say_what_is_missing();
  if (!options.json)
    std::printf("%s; all-reduce of float32 sums, %d rounds in turn, medians\n", bench::machine().c_str(),
                options.rounds);
  if (options.only.empty() || options.only == "sent") print_all_sent(options);
  for (std::string const transport : {"threads", "shared_memory", "shared_memory_own", "tcp"}) {
    if (!options.only.empty() && options.only != transport) continue;
    auto contenders = std::vector<Contender>{};
    for (auto const& one : all)
      if (one.transport == transport) contenders.push_back(one);
    for (int const ranks : options.ranks)
      for (std::size_t const kib : {1U, 16U, 256U, 1'024U, 4'096U, 16'384U, 65'536U, 262'144U})
        if (auto const bytes = kib << 10; bytes <= options.largest)
          print(contenders, in_turn(contenders, ranks, bytes, options.rounds), ranks, bytes, options);
    if (transport != "threads") continue;
    auto const cost = bench::agreement_cost();
    bench::Row{"reduce/agreement"}
        .add("transport", transport)
        .add("announce_nanoseconds", cost.announce)
        .add("label_nanoseconds", cost.label)
        .add("owner_nanoseconds", cost.owner)
        .print(options.json);
  }
}

/// Measures one contender of this program and prints its microseconds.
void measure(std::vector<Contender> const& all, std::string const& key, int ranks, std::size_t bytes) {
  for (auto const& one : all) {
    if (one.key() != key) continue;
    std::printf("microseconds %.4f\n", one.run(ranks, bytes));
    return;
  }
  throw chorale::BadArgument{"there is no contender \"" + key + "\"."};
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags   = CLI::App{"Microseconds of an all-reduce, beside Gloo, MPI and bare loops."};
  auto options = Options{};
  auto key     = std::string{};
  auto bytes   = std::size_t{1} << 20;
  flags.add_flag("--json", options.json, "one JSON object a line");
  flags.add_flag("--all", options.all, "a row for every contender, too");
  flags.add_option("--rounds", options.rounds, "of every contender in turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags.add_option("--only", options.only, "one transport, or sent")
      ->check(CLI::IsMember({"threads", "shared_memory", "shared_memory_own", "tcp", "sent"}));
  flags.add_option("--ranks", options.ranks, "one or more numbers")->check(CLI::Range(2, 64))->capture_default_str();
  flags.add_option("--largest", options.largest, "bytes; the sizes above are left out")->capture_default_str();
  flags.add_option("--measure", key, "one contender, TRANSPORT/NAME, and print its microseconds");
  flags.add_option("--bytes", bytes, "for --measure")->check(CLI::Range(4, 1 << 30))->capture_default_str();
  CLI11_PARSE(flags, argc, argv);
  auto all = std::vector<Contender>{};
  add_ours_and_limits(all);
  add_gloo(all);
  if (!key.empty()) return measure(all, key, options.ranks.front(), bytes), 0;
  auto const mpi = bench::MpiPeers{};
  add_mpi(all, mpi);
  report(all, options);
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
