// SPDX-License-Identifier: Apache-2.0
//
// Seconds to save and load a checkpoint of 1 GiB, beside what the disk can do and what others need.
//
//   tools/run bench/checkpoint --json
//
// Every way in turn, several rounds; medians, and the best of each, which says more on a disk that is shared.
//
//   save     ours: summed, synced, renamed, and the oldest of three removed. `bare` is a loop of write() and one
//            fsync() for as many bytes, into a new file as ours are: the disk begins late there, so that ours may be
//            faster. `cp` copies a file that is in memory and syncs it. Peers get an fsync() that they do not do by
//            themselves, and write over their old file
//   behind   what the step waits for with Saving::behind: a copy in memory
//   step     milliseconds of a training step (the CNN of the examples, batch 64, one core) while such a save goes on,
//            beside those of as many steps without one
//   load     ours: read, every byte checked, and copied into the model's memory; from the disk, after the system was
//            asked to forget it (its host may not), and from the system's memory. `bare` reads the file, and no more
//
// ratio_to_bare = ours / bare, of medians; best_ratio_to_bare of the best: 1 is the disk's speed.
#include "support/ckpt_peers.hpp"
#include "support/same_kernels.hpp"

#include <chorale/checkpoint/manager.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

constexpr std::size_t tensors = 64;

struct Options {
  std::size_t mib    = 1024;
  int rounds         = 5;
  bool json          = false;
  std::string folder = std::filesystem::temp_directory_path();
};

/// A model of so many MiB: a third of it variables, the rest two slots of an optimizer.
class Model {
 public:
  explicit Model(std::size_t mib) : values_((mib << 20) / sizeof(float) / tensors * tensors) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i * 2'654'435'761U % 1'000'003U);
    for (std::size_t i = 0; i < tensors; ++i) {
      auto const part = Span<float>{values_}.subspan(i * each(), each());
      slots_[section(i)].push_back({std::to_string(i), Dtype::f32, {each()}, std::as_writable_bytes(part)});
      state_[section(i)].push_back({std::to_string(i), Dtype::f32, {each()}, std::as_bytes(part)});
    }
  }

  std::size_t each() const { return values_.size() / tensors; }
  ConstBytes bytes() const { return std::as_bytes(Span<float const>{values_}); }
  CheckpointState const& at(std::uint64_t step) {
    state_.at.step = step;
    return state_;
  }
  void take(Checkpoint const& checkpoint) {
    for (auto const& [part, slots] : slots_) checkpoint.copy(part, slots);
  }

 private:
  static Section section(std::size_t i) { return i < tensors / 3 ? Section::variables : Section::optimizer; }

  std::vector<float> values_;
  CheckpointState state_;
  std::map<Section, std::vector<TensorSlot>> slots_;
};

double timed(std::function<void()> const& work) {
  auto const start = std::chrono::steady_clock::now();
  work();
  return bench::seconds_since(start);
}

/// Milliseconds of each training step until `done` is true.
std::vector<double> steps_until(std::function<bool()> const& done) {
  auto const scope    = Cpu::Scope{Cpu::logical(1)[0]};  // a thread: the other core is the writer's
  static auto net     = bench::SameKernels{64, 1};
  static auto const x = [] {
    auto values = std::vector<float>(64 * 784);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = Random{1, 0}.uniform(i);
    return values;
  }();
  static auto const labels = std::vector<int>(64, 7);
  auto all                 = std::vector<double>{};
  while (!done()) all.push_back(1e3 * timed([&] { net.step(x.data(), labels.data()); }));
  return all;
}

/// Steps while a save goes on, which has begun, and then as many without one.
std::pair<std::vector<double>, std::vector<double>> steps_beside(Checkpoints<>& saving) {
  auto saved        = std::atomic<bool>{false};
  auto const ending = NamedThread{"finish", [&] { saving.finish(), saved = true; }};
  auto const during = steps_until([&] { return saved.load(); });
  auto left         = during.size();
  return {during, steps_until([&] { return left-- == 0; })};
}

void print(std::string const& what, Options const& options, std::map<std::string, std::vector<double>> const& all) {
  auto const ours = bench::median(all.at("ours"));
  auto row        = bench::Row{"checkpoint/" + what};
  auto const best = std::ranges::min(all.at("ours"));
  row.add("mib", static_cast<double>(options.mib), "%.0f")
      .add("seconds", ours)
      .add("best_seconds", best)
      .add("best_mib_per_s", static_cast<double>(options.mib) / best, "%.0f");
  for (auto const& [who, seconds] : all)
    if (who != "ours")
      row.add(who + "_seconds", bench::median(seconds))
          .add("ratio_to_" + who, ours / bench::median(seconds), "%.2f")
          .add("best_ratio_to_" + who, best / std::ranges::min(seconds), "%.2f");
  row.print(options.json);
}

void run(Options const& options) {
  auto const folder = std::filesystem::path{options.folder} / ("chorale-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  struct Removed {
    std::filesystem::path path;
    ~Removed() { std::filesystem::remove_all(path); }
  } const removed{folder};
  bool const torch = bench::python_has("torch"), safetensors = torch && bench::python_has("safetensors.torch");
  if (!torch) std::cerr << "SKIPPED: torch.save: " << bench::python() << " has no torch\n";
  if (!safetensors) std::cerr << "SKIPPED: safetensors.torch: " << bench::python() << " has no safetensors\n";
  if (!options.json)
    std::printf("%s; %zu MiB in %zu tensors in %s; %d rounds in turn, medians\n", bench::machine().c_str(), options.mib,
                tensors, options.folder.c_str(), options.rounds);

  auto model  = Model{options.mib};
  auto now    = Checkpoints{CheckpointOptions{.folder = folder / "now", .on_save_error = OnSaveError::stop}};
  auto behind = Checkpoints{
      CheckpointOptions{.folder = folder / "behind", .on_save_error = OnSaveError::stop, .saving = Saving::behind}};
  bench::bare_write(folder / "source", model.bytes());
  auto save = std::map<std::string, std::vector<double>>{}, wait = save, cold = save, warm = save;
  auto during = std::vector<double>{}, without = during;
  steps_until([left = 200]() mutable { return left-- == 0; });  // warm up
  for (int round = 0; round < options.rounds; ++round) {
    auto const number = static_cast<std::uint64_t>(round) + 1;
    auto const bare   = folder / ("bare" + std::to_string(number));
    auto ways         = std::vector<std::pair<std::string, std::function<double()>>>{
        {"ours", [&] { return timed([&] { now.save(model.at(number)); }); }},
        {"bare", [&] { return bench::bare_write(bare, model.bytes()); }},
        {"cp", [&] { return bench::cp_and_sync(folder / "source", folder / ("copy" + std::to_string(number))); }}};
    if (torch)
      ways.push_back({"torch", [&] { return bench::torch_seconds(folder / "torch", tensors, model.each(), true); }});
    if (safetensors)
      ways.push_back(
          {"safetensors", [&] { return bench::safetensors_seconds(folder / "st", tensors, model.each(), true); }});
    std::ranges::rotate(ways, ways.begin() + round % static_cast<int>(ways.size()));  // each is first at times
    for (auto const& [who, work] : ways) save[who].push_back(work());
    for (auto const* name : {"bare", "copy"}) std::filesystem::remove(folder / (name + std::to_string(number - 1)));
    wait["ours"].push_back(timed([&] { behind.save(model.at(number)); }));
    auto const [with, alone] = steps_beside(behind);
    during.insert(during.end(), with.begin(), with.end());
    without.insert(without.end(), alone.begin(), alone.end());
    std::filesystem::remove_all(folder / "behind");

    for (auto* const load : {&cold, &warm}) {
      auto const read = [&](std::string const& who, std::filesystem::path const& path, auto&& work) {
        if (load == &cold) bench::forget(path);
        (*load)[who].push_back(work());
      };
      read("bare", bare, [&] { return bench::bare_read(bare); });
      read("ours", folder / "now" / checkpoint_name(number),
           [&] { return timed([&] { model.take(now.restore().value()); }); });
      if (torch)
        read("torch", folder / "torch",
             [&] { return bench::torch_seconds(folder / "torch", tensors, model.each(), false); });
      if (safetensors)
        read("safetensors", folder / "st",
             [&] { return bench::safetensors_seconds(folder / "st", tensors, model.each(), false); });
    }
  }
  print("save", options, save);
  print("behind", options, wait);
  auto const mean = [](auto const& all) { return std::accumulate(all.begin(), all.end(), 0.0) / double(all.size()); };
  bench::Row{"checkpoint/step"}
      .add("mib", static_cast<double>(options.mib), "%.0f")
      .add("steps", static_cast<double>(during.size()), "%.0f")
      .add("ms_during", bench::median(during))
      .add("ms_without", bench::median(without))
      .add("ratio", bench::median(during) / bench::median(without), "%.3f")
      .add("ratio_of_means", mean(during) / mean(without), "%.3f")
      .print(options.json);
  print("load_from_disk", options, cold);
  print("load_from_memory", options, warm);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags   = CLI::App{"Seconds to save and to load a checkpoint, beside the disk's own speed and other writers."};
  auto options = Options{};
  flags.add_flag("--json", options.json, "one JSON object a line");
  flags.add_option("--rounds", options.rounds, "of every way in turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags.add_option("--mib", options.mib, "size of the checkpoint")->check(CLI::Range(1, 65'536))->capture_default_str();
  flags.add_option("--folder", options.folder, "on the disk that is measured")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  CLI11_PARSE(flags, argc, argv);
  run(options);
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
