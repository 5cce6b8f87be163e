// SPDX-License-Identifier: Apache-2.0
//
// How many rows a second the input pipeline gives, beside tf.data and PyTorch's DataLoader.
//
//   tools/run bench/input --json
//
// Every contender is a program of its own that is kept to as many cores as it may use, in turn, several rounds; a row
// has medians. All rows are taken in batches. Files are in the system's cache.
//
//   tfrecord_4k, _64k   records of 256 MiB of TFRecord files, checksums looked at; the limit is read() of these files
//   jpeg, jpeg_64       pictures of 256 x 256 decoded, cropped to 224 x 224, maybe flipped, scaled to 0 … 1; of 64 x 64
//                       to 56 x 56. All contenders decode by libjpeg-turbo, which is most of what large ones take
//   shuffle, batch      rows of 784 bytes in memory, through a buffer of 10,000; into batches of 128
//   chain               records, Examples, shuffle, the same as jpeg, batches of 64; on 1 core and on 2
//   prefetch            a step whose input and compute take 2 ms each, by the larger of the two
//
// DataLoader has no reader of TFRecords. It gets a few lines of Python that do not look at checksums, so its rate is
// shown, but no ratio to it. A peer needs its Python package: CHORALE_PYTHON has the interpreters to try, with colons
// between them; then come python3 and /usr/bin/python3. The program says what it leaves out.
#include "support/folder.hpp"
#include "support/input_ours.hpp"
#include "support/report.hpp"

#include <chorale/core/error.hpp>

#include <CLI/CLI.hpp>

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Case {
  std::string name;
  std::size_t threads;
  std::string files;  // whose reading is the limit, if any
};

std::vector<Case> const cases = {{"tfrecord_4k", 1, "small"},
                                 {"tfrecord_64k", 1, "large"},
                                 {"jpeg", 1, ""},
                                 {"jpeg_64", 1, ""},
                                 {"shuffle", 1, ""},
                                 {"batch", 1, ""},
                                 {"chain", 1, ""},
                                 {"chain", 2, ""}};

/// Who is measured, by a command that prints records_per_s.
struct Contender {
  std::string name, command;
  std::vector<double> rates{};

  double median() const { return bench::median(rates); }
};

struct Peer {
  std::string name, package, interpreter{};
};

bool imports(std::string const& interpreter, std::string const& packages) {
  try {
    bench::output_of("'" + interpreter + "' -c 'import " + packages + "'");
    return true;
  } catch (std::runtime_error const&) { return false; }
}

std::vector<Peer> peers_here() {
  auto interpreters = std::vector<std::string>{};
  if (auto const* named = std::getenv("CHORALE_PYTHON"))
    for (auto [all, one] = std::pair{std::istringstream{named}, std::string{}}; std::getline(all, one, ':');)
      interpreters.push_back(one);
  interpreters.insert(interpreters.end(), {"python3", "/usr/bin/python3"});
  auto found = std::vector<Peer>{};
  for (auto peer : {Peer{"tf.data", "tensorflow"}, Peer{"DataLoader", "torch"}}) {
    auto const has = [&](std::string const& packages) {
      return std::ranges::find_if(interpreters, [&](auto const& one) { return imports(one, packages); });
    };
    auto at = has(peer.package + ", PIL");  // one that can decode, where there is one
    if (at == interpreters.end()) at = has(peer.package + ", numpy");
    if (at == interpreters.end())
      std::fprintf(stderr, "SKIPPED: %s: no python package %s\n         Try: CHORALE_PYTHON=interpreter\n",
                   peer.name.c_str(), peer.package.c_str());
    else peer.interpreter = *at, found.push_back(peer);
  }
  return found;
}

std::vector<Contender> contenders(Case const& what, std::string const& folder, std::vector<Peer> const& peers) {
  auto const options = " --folder '" + folder + "' --threads " + std::to_string(what.threads);
  auto const ours    = "'" + bench::this_program() + "' --case " + what.name + options + " --measure ";
  auto all           = std::vector<Contender>{{"ours", ours + "ours"}};
  if (!what.files.empty()) all.push_back({"limit", ours + "limit"});
  for (auto const& peer : peers) {
    auto const command = "'" + peer.interpreter + "' '" + bench::script("input_peer.py") + "' " + peer.package + " " +
                         what.name + " '" + folder + "' --threads " + std::to_string(what.threads);
    auto const in_memory = what.name == "shuffle" || what.name == "batch";
    auto const pictures  = what.name.starts_with("jpeg") || what.name == "chain";
    if (peer.package == "torch" && pictures && !imports(peer.interpreter, "PIL")) {
      std::fprintf(stderr, "SKIPPED: %s of %s: no python package PIL\n", peer.name.c_str(), what.name.c_str());
      continue;
    }
    all.push_back({peer.name, command});
    if (peer.package == "torch" && in_memory) all.push_back({peer.name + " of whole batches", command + " --whole"});
  }
  return all;
}

void print(Case const& what, std::vector<Contender> const& all, bool json) {
  auto row        = bench::Row{"input/" + what.name};
  auto const ours = all[0].median();
  auto best       = static_cast<Contender const*>(nullptr);
  row.add("threads", static_cast<double>(what.threads), "%.0f").add("records_per_s", ours, "%.0f");
  for (std::size_t i = 1; i < all.size(); ++i) {
    auto const rate = all[i].median();
    if (all[i].name == "limit") {
      row.add("file_cache", rate, "%.0f").add("of_file_cache", ours / rate, "%.2f").add("to_reach", 0.8, "%.1f");
      continue;
    }
    row.add(all[i].name, rate, "%.0f");
    if (!what.files.empty() && all[i].name == "DataLoader") continue;  // it does less
    if (best == nullptr || rate > best->median()) best = &all[i];
  }
  if (best != nullptr) row.add("ratio", ours / best->median(), "%.2f").add("ratio_to_reach", 2, "%.0f");
  row.print(json);
}

void print_prefetch(int rounds, bool json) {
  constexpr auto each = std::chrono::milliseconds{2};
  auto steps          = std::vector<double>{};
  for (int round = 0; round < rounds; ++round) steps.push_back(bench::prefetched_step(each, 300));
  auto const larger = std::chrono::duration<double>(each).count(), step = bench::median(steps);
  auto row = bench::Row{"input/prefetch"};
  row.add("input_ms", larger * 1e3, "%.2f").add("compute_ms", larger * 1e3, "%.2f").add("step_ms", step * 1e3, "%.3f");
  row.add("ratio", step / larger, "%.3f").add("at_most", 1.1, "%.1f").print(json);
}

void keep_to_cores(std::size_t n) {
  auto all = cpu_set_t{}, mine = cpu_set_t{};
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  for (int core = 0; core < CPU_SETSIZE && static_cast<std::size_t>(CPU_COUNT(&mine)) < n; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &mine);
  sched_setaffinity(0, sizeof mine, &mine);
}

void report(int rounds, bool json, bool quick, std::string const& only) {
  auto const peers  = peers_here();
  auto const folder = bench::Folder{};
  bench::write_input_files(folder.path, quick ? 64 : 1);
  if (!json) std::printf("%s; input pipelines, %d rounds in turn, medians\n", bench::machine().c_str(), rounds);
  for (auto const& what : cases) {
    if (!only.empty() && only != what.name) continue;
    auto all = contenders(what, folder.path, peers);
    for (int round = 0; round < rounds; ++round)
      for (auto& one : all) one.rates.push_back(bench::number_after(bench::output_of(one.command), "records_per_s"));
    print(what, all, json);
  }
  if (only.empty() || only == "prefetch") print_prefetch(rounds, json);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags   = CLI::App{"How many rows a second the input pipeline gives, beside tf.data and DataLoader."};
  auto rounds  = 3;
  auto threads = std::size_t{1};
  auto json = false, quick = false;
  auto measure = std::string{}, only = std::string{}, folder = std::string{};
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_flag("--quick", quick, "a 64th part of the records: no rate to compare");
  flags.add_option("--rounds", rounds, "of every contender in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--case", only, "one of the above, else all");
  flags.add_option("--measure", measure, "ours or limit: print its records_per_s")
      ->check(CLI::IsMember({"ours", "limit"}));
  flags.add_option("--folder", folder, "for --measure: with the files");
  flags.add_option("--threads", threads, "for --measure")->check(CLI::PositiveNumber);
  CLI11_PARSE(flags, argc, argv);
  if (measure.empty()) return report(rounds, json, quick, only), 0;
  keep_to_cores(threads);
  if (measure == "ours") std::printf("records_per_s %.1f\n", bench::our_input(only, folder, threads));
  for (auto const& what : cases)
    if (measure == "limit" && what.name == only)
      std::printf("records_per_s %.1f\n", bench::file_cache_limit(folder, what.files));
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
