// SPDX-License-Identifier: Apache-2.0
#include "test/checkpoint/folder.hpp"
#include "test/support/full_disk.hpp"
#include "test/support/limits.hpp"
#include "test/support/processes.hpp"
#include "test/support/storm.hpp"

#include <chorale/checkpoint/failpoints.hpp>
#include <chorale/checkpoint/manager.hpp>
#include <chorale/checkpoint/writer.hpp>

#include <catch2/catch.hpp>

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using Catch::Matchers::Contains;

namespace {

/// Calls `deed` when the n-th point is reached, counted over all saves.
template <class Deed> struct AtPoint {
  int* count;
  int n;
  Deed deed;
  void hit(std::string_view point) const {
    if ((*count)++ == n) deed(point);
  }
};

struct Fail {
  void operator()(std::string_view point) const { system_fault(std::string{point}, EIO); }
};

/// How many points the saves of `body` come to.
struct Count {
  int* count;
  void hit(std::string_view) const { ++*count; }
};

}  // namespace

TEST_CASE("what was saved is read back bit for bit, and the files are plain safetensors", "[checkpoint][unit]") {
  auto const folder   = OwnFolder{};
  auto const training = Training{812};
  auto logged         = Logged{folder.run()};
  auto checkpoints    = Checkpoints{logged.options};
  CHECK_FALSE(checkpoints.restore());
  CHECK(checkpoints.save(training.state) == Saved::yes);
  CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000812"});
  CHECK(names_in(folder.run() / "ckpt-000812") ==
        std::set<std::string>{"manifest.json", "optimizer.safetensors", "state.safetensors", "variables.safetensors"});
  auto const last = checkpoints.restore();
  REQUIRE(last);
  CHECK(is_whole(*last));
  CHECK(last->manifest().job == "job");
  auto const file = SafetensorsFile::read(folder.run() / "ckpt-000812" / "variables.safetensors");
  CHECK(file.floats("dense/kernel") == training.values.at("dense/kernel"));
  CHECK(logged.lines.empty());
}

TEST_CASE("T40: a storm of signals changes no bit of what is saved or read", "[checkpoint][faults]") {
  auto const storm = Storm{};
  for (auto const saving : {Saving::now, Saving::behind}) {
    auto const folder = OwnFolder{};
    auto checkpoints  = Checkpoints{{.folder = folder.run(), .saving = saving}};
    for (std::uint64_t step = 1; step <= 20; ++step) {
      checkpoints.save(Training{step, 300'000}.state);
      checkpoints.finish();
      auto const last = checkpoints.restore();
      REQUIRE(last);
      CHECK(last->manifest().step == step);
      CHECK(is_whole(*last, 300'000));
    }
  }
  CHECK(storm.signals() > 100);
}

TEST_CASE("a process that is killed at any point of a save leaves a checkpoint that is whole", "[checkpoint][faults]") {
  auto seen        = std::set<std::string>{};
  auto const older = OwnFolder{};
  for (std::uint64_t const step : {100U, 101U})
    Checkpoints{CheckpointOptions{.folder = older.run(), .block = 4096}}.save(Training{step}.state);
  for (int n = 0;; ++n) {
    auto const folder = OwnFolder{};
    std::filesystem::copy(older.run(), folder.run(), std::filesystem::copy_options::recursive);
    auto const body = [&](int, Voice voice) {
      auto const deed = [&](std::string_view point) {
        voice.say(std::string{point});
        ::raise(SIGKILL);
      };
      auto count         = int{0};
      auto const options = CheckpointOptions{.folder = folder.run(), .block = 4096};
      auto kept          = Checkpoints{options, AtPoint<decltype(deed)>{&count, n, deed}};
      kept.save(Training{102}.state);  // and 100 goes
      kept.save(Training{102}.state);  // and the one before goes
    };
    auto process     = Processes{1, body};
    auto const point = process.line(0);
    auto const code  = process.exit(0);
    CAPTURE(n, point);
    seen.insert(point);
    auto logged      = Logged{folder.run()};
    auto checkpoints = Checkpoints{logged.options};
    auto const last  = checkpoints.restore();
    REQUIRE(last);
    CHECK(logged.lines.empty());
    for (auto const step : checkpoint_steps(folder.run()))  // whatever has such a name is whole
      CHECK(is_whole(Checkpoint::read(folder.run() / checkpoint_name(step))));
    auto const known = std::find(save_points.begin(), save_points.end(), point);
    if (seen.count("ckpt.end") != 0 || known >= save_points.end() - 5) CHECK(last->manifest().step == 102);
    else CHECK(last->manifest().step == 101);
    CHECK(checkpoints.save(Training{103}.state) == Saved::yes);  // tidies
    auto const step = checkpoint_name(last->manifest().step);
    CHECK(names_in(folder.run()) == std::set<std::string>{step, "ckpt-000103"});
    if (code == 0) break;
    REQUIRE(code == 128 + SIGKILL);
  }
  seen.erase("");
  CHECK(seen == std::set<std::string>(save_points.begin(), save_points.end()));
}

TEST_CASE("when the system refuses anything the old checkpoint stays, and nothing lies beside it",
          "[checkpoint][unit]") {
  auto points      = int{0};
  auto const older = OwnFolder{};
  Checkpoints{CheckpointOptions{.folder = older.run(), .block = 4096}, Count{&points}}.save(Training{1}.state);
  REQUIRE(points > 15);
  auto renamed = false;
  for (int n = 0; n < points; ++n) {
    auto const folder = OwnFolder{};
    auto logged       = Logged{folder.run()};
    std::filesystem::copy(older.run(), folder.run(), std::filesystem::copy_options::recursive);
    auto count     = int{0};
    auto failing   = Checkpoints{logged.options, AtPoint<Fail>{&count, n, {}}};
    auto const how = failing.save(Training{2}.state);
    CAPTURE(n, logged.all());
    if (logged.all().find("ckpt.renamed") != std::string::npos) renamed = true;
    auto const names = names_in(folder.run());
    CHECK(names ==
          (renamed ? std::set<std::string>{"ckpt-000001", "ckpt-000002"} : std::set<std::string>{"ckpt-000001"}));
    if (how == Saved::yes) continue;
    CHECK(how == Saved::failed);
    CHECK(failing.failures() == 1);
    CHECK_THAT(logged.all(), Contains("ckpt-000002: not saved: ckpt.") && Contains("Input/output error. It needs ") &&
                                 Contains("Training goes on."));
    CHECK(is_whole(*newest_checkpoint(logged.options)));
  }
  CHECK(renamed);
}

TEST_CASE("a file that may not grow further is an error with the system's number", "[checkpoint][unit]") {
  auto const folder            = OwnFolder{};
  auto logged                  = Logged{folder.run()};
  logged.options.on_save_error = OnSaveError::stop;
  auto checkpoints             = Checkpoints{logged.options};
  checkpoints.save(Training{1}.state);
  auto number = 0;
  auto said = std::string{}, path = said;
  try {
    auto const full = FullDisk{10'000};
    checkpoints.save(Training{2}.state);
  } catch (CheckpointFailed const& error) {
    number = error.number();
    said   = error.what();
    path   = error.path();
    CHECK(error.need() > 24'000);
    CHECK(error.free() > 0);
  }
  CHECK(number == EFBIG);
  CHECK(path == (folder.run() / "ckpt-000002").string());
  CHECK_THAT(said, Contains("variables.safetensors: byte 10000: cannot be written: File too large") &&
                       Contains("Try: room there"));
  CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000001"});
  CHECK(checkpoints.save(Training{3}.state) == Saved::yes);  // it goes on when there is room again
  CHECK(checkpoints.restore()->manifest().step == 3);
}

TEST_CASE("a full disk is seen before anything is written, and while it is written", "[checkpoint][faults]") {
  auto const folder = OwnFolder{};
  std::filesystem::create_directory(folder.run());
  auto const body = [&](int, Voice voice) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.run().c_str(), "tmpfs", 0, "size=1m") != 0) {
      voice.say("no mount");
      return;
    }
    auto const say   = [&](bool good, std::string const& what) { voice.say(good ? "good" : what); };
    auto logged      = Logged{folder.run()};
    auto checkpoints = Checkpoints{logged.options};
    checkpoints.save(Training{1, 60'000}.state);  // 480 kB of 1 MiB
    auto const large = checkpoints.save(Training{2, 80'000}.state);
    say(large == Saved::failed && logged.all().find("there is not enough room: No space left") != std::string::npos &&
            is_whole(*newest_checkpoint(logged.options), 60'000),
        "too late: " + logged.all());
    logged.lines.clear();
    auto const training = Training{2, 50'000};
    auto number         = 0;
    auto need = std::uint64_t{0}, free = need;
    try {  // someone who says less than it will be
      auto save = CheckpointWriter<>{logged.options, 2, 1000};
      put(folder.run() / "other", std::string(300'000, 'x'));
      save.write(CheckpointImage{training.state});
    } catch (CheckpointFailed const& error) {
      number = error.number();
      need   = error.need();
      free   = error.free();
    }
    say(number == ENOSPC && need == 1100 && free < 400'000 && logged.lines.empty() &&
            names_in(folder.run()) == std::set<std::string>{"ckpt-000001", "other"},
        "the number " + std::to_string(number) + ", free " + std::to_string(free) + logged.all());
    say(is_whole(*newest_checkpoint(logged.options), 60'000), "the old one is damaged");
  };
  auto process     = Processes{1, body};
  auto const first = process.line(0);
  if (first == "no mount") {
    WARN("SKIPPED: a full disk needs the right to mount a file system");
    return;
  }
  CHECK(first == "good");
  CHECK(process.line(0) == "good");
  CHECK(process.line(0) == "good");
}

TEST_CASE("a folder that cannot be is an error before training begins", "[checkpoint][unit]") {
  auto const folder = OwnFolder{};
  auto logged       = Logged{folder.path() / "file" / "run"};
  put(folder.path() / "file", "x");
  logged.options.on_save_error = OnSaveError::stop;
  CHECK_THROWS_WITH(Checkpoints{logged.options}.save(Training{1}.state), Contains("Not a directory"));
  logged.options.folder = folder.run();
  logged.options.keep   = 1;
  CHECK_THROWS_AS(Checkpoints{logged.options}.save(Training{1}.state), BadArgument);
  logged.options.keep = 2;
  logged.options.job  = "../job";
  CHECK_THROWS_AS(Checkpoints{logged.options}.save(Training{1}.state), BadArgument);
  CHECK_FALSE(std::filesystem::exists(folder.run()));
}

TEST_CASE("as many stay as are kept, the newest; what others have there stays", "[checkpoint][unit]") {
  auto const folder = OwnFolder{};
  auto const other  = std::set<std::string>{"ckpt-000001.tmp.other", "ckpt-7", "notes.txt", "ckpt-000900"};
  std::filesystem::create_directories(folder.run() / "ckpt-000001.tmp.other");
  std::filesystem::create_directories(folder.run() / "ckpt-000001.tmp.job");
  std::filesystem::create_directories(folder.run() / "ckpt-000002.old.job");
  put(folder.run() / "ckpt-000001.tmp.job" / "half", "x");
  put(folder.run() / "ckpt-000003.tmp.job", "a file of that name");
  put(folder.run() / "ckpt-7", "x");
  put(folder.run() / "notes.txt", "x");
  put(folder.path() / "outside", "x");
  std::filesystem::create_symlink(folder.path(), folder.run() / "ckpt-000900");
  std::filesystem::create_symlink(folder.path(), folder.run() / "ckpt-000004.tmp.job");
  auto logged         = Logged{folder.run()};
  logged.options.keep = 3;
  auto checkpoints    = Checkpoints{logged.options};
  for (std::uint64_t step = 10; step < 16; ++step) checkpoints.save(Training{step}.state);
  auto expected = other;
  expected.insert({"ckpt-000013", "ckpt-000014", "ckpt-000015"});
  CHECK(names_in(folder.run()) == expected);
  CHECK(get(folder.path() / "outside") == "x");
  CHECK(logged.lines.empty());

  // One that is seen to be damaged takes no place of a good one, and one of a run that went further stays.
  std::filesystem::resize_file(folder.run() / "ckpt-000014" / "variables.safetensors", 100);
  logged.options.keep = 2;
  Checkpoints{logged.options}.save(Training{15}.state);
  CHECK(names_in(folder.run()) == expected);
  Checkpoints{logged.options}.save(Training{16}.state);
  expected.erase("ckpt-000013");
  expected.erase("ckpt-000014");
  expected.insert("ckpt-000016");
  CHECK(names_in(folder.run()) == expected);
  Checkpoints{logged.options}.save(Training{12}.state);
  expected.insert("ckpt-000012");
  CHECK(names_in(folder.run()) == expected);
}

TEST_CASE("a save of the same job that still runs elsewhere is left alone", "[checkpoint][unit]") {
  auto const folder   = OwnFolder{};
  auto const training = Training{5};
  auto logged         = Logged{folder.run()};
  auto const image    = CheckpointImage{training.state};
  auto other          = std::optional<CheckpointWriter<>>{};
  other.emplace(logged.options, 5, image.size());
  other->write(image);
  auto number = 0;
  try {
    CheckpointWriter<>{logged.options, 5, image.size()};
  } catch (CheckpointFailed const& error) { number = error.number(); }
  CHECK(number == EEXIST);
  CHECK(Checkpoints{logged.options}.save(Training{6}.state) == Saved::yes);
  other->commit(training.state.at);
  CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000005", "ckpt-000006"});
  CHECK(is_whole(Checkpoint::read(folder.run() / "ckpt-000005")));
  other.emplace(logged.options, 7, image.size());
  other.reset();  // never committed
  CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000005", "ckpt-000006"});
}

TEST_CASE("ranks write parts of a checkpoint, and a reader sees no parts", "[checkpoint][unit]") {
  auto const folder   = OwnFolder{};
  auto const training = Training{5};
  auto logged         = Logged{folder.run()};
  for (std::uint64_t n : {1U, 2U, 3U, 7U}) {
    auto const step = training.state.at.step;
    auto save       = CheckpointWriter<>{logged.options, step, CheckpointImage{training.state}.size()};
    for (std::uint64_t i = n; i-- > 0;) save.add(write_part(logged.options, step, training.state, {i, n}));
    save.commit(training.state.at);
    auto const last = newest_checkpoint(logged.options);
    CAPTURE(n);
    CHECK(is_whole(*last));
    CHECK(names_in(last->path()).size() == 3 * n + 1);
  }
  auto save = CheckpointWriter<>{logged.options, 6, 1000};
  save.add(write_part(logged.options, 6, training.state, {0, 2}));
  SECTION("a part that is missing is seen before it is committed") {
    CHECK_THROWS_WITH(save.commit(training.state.at), Contains("has 1 of the 2 parts of variables"));
  }
  SECTION("and so is a file that is not what was written") {
    save.add(write_part(logged.options, 6, training.state, {1, 2}));
    std::filesystem::resize_file(folder.run() / "ckpt-000006.tmp.job" / "state-00001-of-00002.safetensors", 10);
    CHECK_THROWS_WITH(save.commit(training.state.at), Contains("state-00001-of-00002.safetensors: is not what was"));
  }
  CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000005"});
}

TEST_CASE("parts have each tensor once, and about as many bytes each", "[checkpoint][unit]") {
  auto const bytes = std::vector<std::byte>(1000);
  auto tensors     = std::vector<NamedTensor>{};
  for (std::size_t i = 0; i < 100; ++i)
    tensors.push_back({std::to_string(i), Dtype::u8, {i * 7 % 100}, ConstBytes{bytes}.first(i * 7 % 100)});
  for (std::uint64_t n : {1U, 2U, 3U, 10U, 200U}) {
    auto names = std::vector<std::string>{};
    auto most  = std::size_t{0};
    for (std::uint64_t i = 0; i < n; ++i) {
      auto size = std::size_t{0};
      for (auto const& tensor : part_of(tensors, {i, n})) {
        names.push_back(tensor.name);
        size += tensor.bytes.size();
      }
      most = std::max(most, size);
    }
    CHECK(names.size() == 100);
    CHECK(std::set<std::string>(names.begin(), names.end()).size() == 100);
    CHECK(most <= 4950 / n + 100);
  }
}

namespace {

/// Stops a save in its middle until it is let go.
struct Gate {
  std::atomic<bool>*reached, *open;
  void hit(std::string_view point) const {
    if (point != "ckpt.file.half") return;
    *reached = true;
    spin_until([this] { return open->load(); });
  }
};

}  // namespace

TEST_CASE("a save behind training writes the moment of the call, whatever training does then", "[checkpoint][unit]") {
  auto const folder = OwnFolder{};
  auto logged       = Logged{folder.run()};
  auto reached = std::atomic<bool>{false}, open = std::atomic<bool>{false};
  logged.options.saving    = Saving::behind;
  logged.options.when_busy = WhenBusy::skip;
  auto training            = Training{1};
  {
    auto checkpoints = Checkpoints{logged.options, Gate{&reached, &open}};
    CHECK(checkpoints.save(training.state) == Saved::begun);
    spin_until([&] { return reached.load(); });
    for (auto& [name, values] : training.values) std::fill(values.begin(), values.end(), -1.0F);
    training.calls = 0;
    CHECK(checkpoints.save(training.state) == Saved::skipped);
    CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000001.tmp.job"});
    open = true;
    checkpoints.finish();
    CHECK(is_whole(*checkpoints.restore()));
    CHECK(checkpoints.save(Training{2}.state) == Saved::begun);
  }  // waits
  CHECK(is_whole(*newest_checkpoint(logged.options)));
  CHECK(newest_checkpoint(logged.options)->manifest().step == 2);
  REQUIRE(logged.lines.size() == 1);
  CHECK(logged.lines[0] == "step 1 is not saved: the one before it is still being written.");
}

TEST_CASE("a save behind training is made before it where no thread can start", "[checkpoint][processes]") {
  if (has_shadow) return (void)std::printf("SKIPPED: a save without a thread: %s\n", no_limit);
  auto const folder = OwnFolder{};
  auto processes    = Processes{1,
                             [&](int, Voice voice) {
                               auto options     = CheckpointOptions{.folder = folder.run(), .saving = Saving::behind};
                               auto checkpoints = Checkpoints{options};
                               auto training    = Training{2};
                               set_limit(RLIMIT_AS, address_space() + (4 << 20));  // a stack has 8 MiB
                               auto open = std::atomic<bool>{false};
                               {
                                 auto others = std::list<NamedThread>{};  // they take the stacks that were left
                                 auto none   = false;
                                 while (!none && others.size() < 100) {
                                   try {
                                     others.emplace_back("waits", [&] { open.wait(false); });
                                   } catch (Error const&) { none = true; }
                                 }
                                 voice.say(none ? "no thread" : "a thread");
                                 checkpoints.save(training.state);
                                 checkpoints.finish();
                                 open = true;
                                 open.notify_all();
                               }
                               voice.say(std::to_string(checkpoints.failures()));
                             },
                             20};
  CHECK(processes.line(0) == "no thread");
  CHECK(processes.line(0) == "0");
  CHECK(newest_checkpoint({.folder = folder.run()})->manifest().step == 2);
}

TEST_CASE("with WhenBusy::wait every save behind training is written, in order", "[checkpoint][unit]") {
  auto const folder     = OwnFolder{};
  auto logged           = Logged{folder.run()};
  logged.options.saving = Saving::behind;
  auto checkpoints      = Checkpoints{logged.options};
  for (std::uint64_t step = 1; step < 6; ++step) CHECK(checkpoints.save(Training{step}.state) == Saved::begun);
  CHECK(is_whole(*checkpoints.restore()));
  CHECK(names_in(folder.run()) == std::set<std::string>{"ckpt-000004", "ckpt-000005"});
  CHECK(logged.lines.empty());
}

TEST_CASE("what goes wrong behind training is said at the next call, or in the end", "[checkpoint][unit]") {
  auto const folder     = OwnFolder{};
  auto logged           = Logged{folder.run()};
  logged.options.saving = Saving::behind;
  auto count            = int{0};
  SECTION("a line, and training goes on") {
    auto checkpoints = Checkpoints{logged.options, AtPoint<Fail>{&count, 4, {}}};
    checkpoints.save(Training{1}.state);
    CHECK(checkpoints.save(Training{2}.state) == Saved::begun);
    CHECK(checkpoints.failures() == 1);
    CHECK_THAT(logged.all(), Contains("ckpt-000001: not saved: ") && Contains("Training goes on."));
    CHECK(checkpoints.restore()->manifest().step == 2);
  }
  SECTION("an error, at the next save") {
    logged.options.on_save_error = OnSaveError::stop;
    auto checkpoints             = Checkpoints{logged.options, AtPoint<Fail>{&count, 4, {}}};
    checkpoints.save(Training{1}.state);
    CHECK_THROWS_AS(checkpoints.save(Training{2}.state), CheckpointFailed);
    CHECK(checkpoints.save(Training{2}.state) == Saved::begun);
  }
  SECTION("a line, when there is no next call") {
    logged.options.on_save_error = OnSaveError::stop;
    Checkpoints{logged.options, AtPoint<Fail>{&count, 4, {}}}.save(Training{1}.state);
    CHECK_THAT(logged.all(), Contains("ckpt-000001: not saved: "));
  }
  SECTION("tensors that make no file are the caller's mistake, whatever the policy") {
    auto training                     = Training{1};
    training.state.variables[0].shape = {5};
    auto checkpoints                  = Checkpoints{logged.options};
    checkpoints.save(training.state);
    CHECK_THROWS_AS(checkpoints.finish(), BadArgument);
  }
}

TEST_CASE("points of failure cost nothing where there are none", "[checkpoint][unit]") {
  STATIC_REQUIRE(sizeof(ChecksummedFile<NoFaults>) < sizeof(ChecksummedFile<Count>));
  STATIC_REQUIRE(noexcept(NoFaults::hit("ckpt.begin")));
}
