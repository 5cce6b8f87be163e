// SPDX-License-Identifier: Apache-2.0
//
// Draws what a run has left in its folder: plot.svg from scalars.csv, and trace.json from the timelines of its ranks.
// No Python, and no window: the first is a picture for any browser, the second is for ui.perfetto.dev.
//
//   tools/run plot RUNDIR                                  RUNDIR/plot.svg, curves by step
//   tools/run plot RUNDIR --log loss,learning_rate         these two by their logarithm
//   tools/run plot RUNDIR --by seconds --title "MNIST, 4 replicas" --out mnist.svg
//
// Expect a line for each file that is written, such as
//   run/plot.svg: 938 rows of loss, accuracy, val_loss, val_accuracy
#include "tools/plot/svg_plot.hpp"

#include <chorale/observe/merge_timelines.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

using namespace chorale;
namespace fs = std::filesystem;

struct Options {
  std::string folder, by = "step", title, out;
  std::vector<std::string> log, only;
};

void draw(Options const& o) {
  auto const table = read_csv(fs::path{o.folder} / "scalars.csv");
  auto const by    = o.by == "step" ? PlotOptions::By::step : PlotOptions::By::wall_time;
  auto const out   = o.out.empty() ? fs::path{o.folder} / "plot.svg" : fs::path{o.out};
  replace_file(out, svg_plot(table, {.by = by, .title = o.title, .log = o.log, .only = o.only}));
  auto names = std::string{};
  for (auto const& name : table.names)
    if (name != "step" && name != "wall_time" && name != "epoch") names += (names.empty() ? "" : ", ") + name;
  std::printf("%s: %zu rows of %s\n", out.c_str(), table.rows(), names.c_str());
}

void merge(Options const& o) {
  auto files = std::vector<fs::path>{};
  for (auto const& entry : fs::directory_iterator{o.folder})
    if (auto const name = entry.path().filename().string(); name.starts_with("trace-") && name.ends_with(".json"))
      files.push_back(entry.path());
  if (files.empty()) return;
  std::ranges::sort(files);
  auto const out    = fs::path{o.folder} / "trace.json";
  auto const merged = merge_timelines(files, out);
  std::printf("%s: %zu events of %zu ranks, clocks within %.1f us\n", out.c_str(), merged.events, merged.ranks.size(),
              static_cast<double>(merged.largest_error) / 1e3);
}

int main(int argc, char** argv) {
  auto o     = Options{};
  auto flags = CLI::App{"Draws the curves of a run, and merges the timelines of its ranks."};
  flags.add_option("RUNDIR", o.folder, "a folder with scalars.csv, and trace-*.json if there are timelines")
      ->required();
  flags.add_option("--by", o.by, "what goes from left to right: step or seconds")
      ->check(CLI::IsMember({"step", "seconds"}))
      ->capture_default_str();
  flags.add_option("--title", o.title, "a line above the curves");
  flags.add_option("--log", o.log, "panels whose values go by their logarithm, such as loss,learning_rate")
      ->delimiter(',');
  flags.add_option("--only", o.only, "panels to draw, such as loss,accuracy; all without it")->delimiter(',');
  flags.add_option("--out", o.out, "the picture; RUNDIR/plot.svg without it");
  try {
    try {
      flags.parse(argc, argv);
    } catch (CLI::Success const& asked) {  // --help
      return flags.exit(asked);
    } catch (CLI::ParseError const& error) { throw BadArgument{error.what(), "--help"}; }
    draw(o);
    merge(o);
    return 0;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return exit_code(error);
  }
}
