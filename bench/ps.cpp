// SPDX-License-Identifier: Apache-2.0
//
// A parameter server over loopback TCP and over shared memory, beside torch.distributed.rpc and sockets by hand.
//
//   tools/run bench/ps --json
//
// Two workers and one or two servers, processes of this host; both workers call at once, without a pause. Contenders
// run in processes of their own, in turn, several rounds; a row has medians. MB/s is of both workers together.
//
//   push_dense   64 MiB of gradients, which the server applies by SGD
//   pull_dense   64 MiB of values
//   push_rows    20,480 rows of 64 floats, of a table of 200,000
//   pull_rows    the same rows
//   empty        a pull of a version that the worker has: nothing
//
// The limit is the same bytes one way over sockets by hand; nothing is done with them. `worked` is a dense push or pull
// by hand that does the same work: the server receives and adds, or sends, and each call is answered. The peer is torch
// RPC, the faster of two settings, of which one takes shared memory; its server does what ours does, by add_,
// index_add_ and index_select. `ratio` is our faster transport to that, `tcp_ratio` ours over TCP to that.
//
// The peer needs Debian's python3-torch, or an interpreter with it that CHORALE_PYTHON names. Without it the program
// says so and leaves it out.
#include "support/ps_ours.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

namespace {

using bench::PsCase;

struct Goal {
  PsCase what;
  double ratio;  // to the peer
};

std::vector<Goal> const goals = {
    {{"push_dense", bench::ps_dense * sizeof(float)}, 2.5},
    {{"pull_dense", bench::ps_dense * sizeof(float)}, 2},
    {{"push_rows", bench::ps_rows* bench::ps_width * sizeof(float)}, 4},
    {{"pull_rows", bench::ps_rows* bench::ps_width * sizeof(float)}, 1.5},
    {{"empty", sizeof(float)}, 10},
};

/// Who is measured, by a program of its own.
struct Contender {
  std::string name, command;
  std::vector<double> microseconds{};

  double median() const { return bench::median(microseconds); }
};

bool has_peer() {
  try {
    bench::script("ps_peer.py");
    bench::output_of(bench::python() + " -c 'import torch.distributed.rpc'");
    return true;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "SKIPPED: torch RPC: %s\n         Try: apt-get install python3-torch\n", error.what());
    return false;
  }
}

std::vector<Contender> contenders(PsCase const& what, int servers, bool peer) {
  auto const calls = what.bytes > (32 << 20) ? "15" : what.bytes > 4 ? "120" : "1000";
  auto const measure =
      "'" + bench::this_program() + "' --case " + what.name + " --servers " + std::to_string(servers) + " --measure ";
  auto all = std::vector<Contender>{};
  for (std::string const who : {"tcp", "shared_memory", "limit"}) all.push_back({who, measure + who});
  if (what.is_dense()) all.push_back({"worked", measure + "worked"});
  for (std::string const transports : {"uv", "shm,uv"})
    if (peer)
      all.push_back({"torch RPC over " + transports, bench::python() + " '" + bench::script("ps_peer.py") + "' " +
                                                         what.name + " --transports " + transports + " --servers " +
                                                         std::to_string(servers) + " --calls " + calls});
  return all;
}

/// all   ours over TCP and shared memory, the limit, for dense calls the one by hand, then peers
void print(Goal const& goal, int servers, std::vector<Contender> const& all, bool json) {
  auto const empty  = goal.what.name == "empty";
  auto const bytes  = empty ? 0.0 : static_cast<double>(goal.what.bytes);
  auto row          = bench::Row{"ps/" + goal.what.name};
  auto const number = [&](std::string const& prefix, Contender const& one) {
    if (empty) row.add(prefix + "milliseconds", one.median() / 1e3);
    else row.add(prefix + "MB_per_s", bench::ps_workers * bytes / one.median(), "%.0f");
  };
  row.add("servers", servers, "%.0f").add("bytes", bytes, "%.0f");
  auto const best = [](auto first, auto last) {
    return *std::ranges::min_element(first, last, {}, &Contender::median);
  };
  number("tcp_", all[0]);
  number("shared_memory_", all[1]);
  number("tcp_limit_", all[2]);
  auto const peers = all.begin() + (goal.what.is_dense() ? 4 : 3);
  if (goal.what.is_dense()) {
    number("tcp_worked_", all[3]);
    row.add("tcp_of_worked", all[3].median() / all[0].median(), "%.2f");
  }
  if (peers != all.end()) {
    auto const peer = best(peers, all.end());
    row.add("peer", peer.name);
    number("peer_", peer);
    row.add("tcp_ratio", peer.median() / all[0].median(), "%.2f");
    row.add("ratio", peer.median() / best(all.begin(), all.begin() + 2).median(), "%.2f");
    row.add("to_reach", goal.ratio, "%.2f");
  }
  row.print(json);
}

void report(int rounds, bool json, std::string const& only, std::vector<int> const& servers) {
  auto const peer = has_peer();
  if (!json)
    std::printf("%s; parameter server, 2 workers, %d rounds in turn, medians\n", bench::machine().c_str(), rounds);
  for (auto const& goal : goals) {
    if (!only.empty() && only != goal.what.name) continue;
    for (int const s : servers) {
      auto all = contenders(goal.what, s, peer);
      for (int round = 0; round < rounds; ++round)
        for (auto& one : all)
          one.microseconds.push_back(bench::number_after(bench::output_of(one.command), "microseconds"));
      print(goal, s, all, json);
    }
  }
}

double measure_of(std::string const& who, PsCase const& what, int servers) {
  if (who == "tcp") return bench::ps_over_tcp(what, servers);
  if (who == "shared_memory") return bench::ps_over_shared_memory(what, servers);
  if (who == "worked") return bench::worked_ps(what, servers);
  return bench::bare_ps(what);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags   = CLI::App{"A parameter server over TCP and shared memory, beside torch RPC and sockets by hand."};
  auto rounds  = 3;
  auto json    = false;
  auto measure = std::string{}, only = std::string{};
  auto servers = std::vector<int>{1, 2};
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--rounds", rounds, "of every contender in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--servers", servers, "one or more numbers")->check(CLI::Range(1, 16))->capture_default_str();
  flags.add_option("--case", only, "one of the above, else all");
  flags.add_option("--measure", measure, "tcp, shared_memory, limit or worked: print its microseconds")
      ->check(CLI::IsMember({"tcp", "shared_memory", "limit", "worked"}));
  CLI11_PARSE(flags, argc, argv);
  if (measure.empty()) return report(rounds, json, only, servers), 0;
  for (auto const& goal : goals)
    if (goal.what.name == only) std::printf("microseconds %.4f\n", measure_of(measure, goal.what, servers.front()));
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
