// SPDX-License-Identifier: Apache-2.0
// What ranks in processes are told when one of them is killed, stopped, asleep, missing or of another job.
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

std::string job() {
  static int number = 0;
  return "faults-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

/// What a child process leaves for its parent, in memory that they share.
struct Report {
  std::atomic<int> steps;           // completed so far
  std::atomic<std::int64_t> ended;  // when, on the steady clock
  Fault fault;
  Rank culprit;
  std::uint64_t sequence, step;
  float sum;                      // x[0] in the end
  std::array<char, 2'000> error;  // empty when it returned

  std::string text() const { return error.data(); }
  Clock::duration since(Clock::time_point begin) const {
    return Clock::duration{ended.load()} - begin.time_since_epoch();
  }
};

/// A process for each rank, which runs body(rank, report).
class Children {
 public:
  using Body = std::function<void(Rank, Report&)>;

  explicit Children(int ranks)
      : reports_{static_cast<Report*>(::mmap(nullptr, sizeof(Report) * static_cast<std::size_t>(ranks),
                                             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))},
        processes_(static_cast<std::size_t>(ranks)) {}
  Children(int ranks, Body const& body) : Children{ranks} {
    for (Rank rank = 0; rank < ranks; ++rank) start(rank, body);
  }
  ~Children() {
    for (auto const process : processes_)
      if (process > 0) ::kill(process, SIGKILL);
    join();
    ::munmap(reports_, sizeof(Report) * processes_.size());
  }
  Children(Children const&)            = delete;
  Children& operator=(Children const&) = delete;

  void start(Rank rank, Body const& body) {
    auto const process = ::fork();
    if (process == 0) run(rank, body);
    processes_[static_cast<std::size_t>(rank)] = process;
  }

  void wait_for_step(Rank rank, int step) {
    spin_until([&] { return (*this)[rank].steps >= step; });
  }

  Clock::time_point signal(Rank rank, int number) {
    auto const now = Clock::now();
    ::kill(processes_[static_cast<std::size_t>(rank)], number);
    return now;
  }

  void join(Rank rank) {
    auto& process = processes_[static_cast<std::size_t>(rank)];
    if (process > 0) ::waitpid(process, nullptr, 0);
    process = 0;
  }
  void join() {
    for (Rank rank = 0; rank < static_cast<Rank>(processes_.size()); ++rank) join(rank);
  }

  Report& operator[](Rank rank) { return reports_[rank]; }

 private:
  [[noreturn]] void run(Rank rank, Body const& body) {
    ::alarm(60);
    auto& report = reports_[rank];
    try {
      body(rank, report);
    } catch (PeerLost const& lost) {
      report.fault    = lost.fault();
      report.culprit  = lost.rank();
      report.sequence = lost.loss().sequence;
      report.step     = lost.loss().step;
      write(report, lost);
    } catch (Disagreement const& error) {
      report.fault = error.fault();
      write(report, error);
    } catch (std::exception const& error) { write(report, error); }
    report.ended = Clock::now().time_since_epoch().count();
    ::_exit(0);
  }

  static void write(Report& report, std::exception const& error) {
    std::strncpy(report.error.data(), error.what(), report.error.size() - 1);
  }

  Report* reports_;
  std::vector<pid_t> processes_;
};

Timeouts const quick{
    .heartbeat = 100ms, .warn_silent = 300ms, .dead = 800ms, .warn_stuck = 10s, .stuck = 20s, .join = 20s};
Timeouts const restless{.warn_stuck = 200ms, .stuck = 500ms, .join = 20s};

/// Sums ones over and over; before a step, before_step(rank, step).
template <class R, class Before>
void train(SharedMemoryTransport const& transport, int ranks, Rank rank, int steps, Report& report,
           Before before_step) {
  constexpr std::size_t n = 100'003;
  auto endpoints          = transport.connect(Group{ranks, {rank}});
  auto& at                = endpoints[0];
  auto const x            = Span<float>{reinterpret_cast<float*>(at.memory().data()), n};
  for (int step = 0; step < steps; ++step) {
    begin_step(at, static_cast<std::uint64_t>(step));
    before_step(step);
    std::ranges::fill(x, 1.0F);
    R{}.all_reduce(at, x, Op::sum);
    report.sum = x[0];
    ++report.steps;
  }
}

SharedMemoryTransport transport_of(std::string name, Timeouts const& timeouts = quick) {
  return {.name = std::move(name), .timeouts = timeouts, .arena = 100'003 * sizeof(float)};
}

/// All ranks but one were told the same, from `least` to `most` after `begin`.
void check_survivors(Children& children, int ranks, Rank lost, Fault fault, Clock::time_point begin,
                     std::chrono::milliseconds least, std::chrono::milliseconds longest) {
  auto const first = lost == 0 ? 1 : 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == lost) continue;
    auto const& report = children[rank];
    INFO("rank " << rank << ": " << report.text());
    CHECK(report.fault == fault);
    CHECK(report.culprit == lost);
    CHECK(report.text().substr(report.text().find(" lost ")) ==
          children[first].text().substr(children[first].text().find(" lost ")));
    CHECK(report.sequence == children[first].sequence);
    CHECK(report.step == children[first].step);
    CHECK_THAT(report.text(), Catch::Contains("all_reduce (sum) of 100003 float, tag 0"));
    CHECK(report.since(begin) >= least);
    CHECK(report.since(begin) <= longest);
  }
}

void idle() {
  for (;;) ::pause();
}

/// A rank of 2 that has joined and waits for the other one: returns when it is in the file.
void wait_until_joined(std::string const& name, Rank rank) {
  spin_until(
      [&] { return shared_memory::SegmentFile{name}.prefix().processes[static_cast<std::size_t>(rank)].process != 0; });
}

Fault refused(SharedMemoryTransport const& transport, Group const& group, std::string& text) {
  try {
    transport.connect(group);
  } catch (Disagreement const& error) {
    text = error.what();
    return error.fault();
  }
  FAIL("it was not refused");
  return {};
}

}  // namespace

TEMPLATE_TEST_CASE("a rank that is killed in an all-reduce is named by all others within a second",
                   "[transport][shared_memory][fault]", RingAllReduce, DirectAllReduce) {
  auto const ranks = GENERATE(2, 3, 4);
  auto const lost  = GENERATE(0, 1);
  auto const name  = job();
  auto children    = Children{ranks, [&](Rank rank, Report& report) {
                             train<TestType>(transport_of(name), ranks, rank, 1'000'000, report, [](int) {});
                           }};
  children.wait_for_step(lost, 5);
  auto const killed = children.signal(lost, SIGKILL);
  children.join();
  check_survivors(children, ranks, lost, Fault::peer_lost, killed, 0ms, 1s);
  CHECK_THAT(children[1 - lost].text(), Catch::Contains("its process") && Catch::Contains("ended"));
}

TEST_CASE("a rank that is killed between steps is named by all others within a second",
          "[transport][shared_memory][fault]") {
  auto const ranks = 3;
  auto const name  = job();
  auto children    = Children{ranks, [&](Rank rank, Report& report) {
                             train<DirectAllReduce>(transport_of(name), ranks, rank, 100, report, [&](int step) {
                               if (rank == 2 && step == 7) idle();
                             });
                           }};
  for (Rank rank = 0; rank < ranks; ++rank) children.wait_for_step(rank, 7);  // who is done first may be done alone
  auto const killed = children.signal(2, SIGKILL);
  children.join();
  check_survivors(children, ranks, 2, Fault::peer_lost, killed, 0ms, 1s);
  CHECK(children[0].steps == 7);
}

TEST_CASE("a stopped process is declared dead when the limit is over, and evicted when it comes back",
          "[transport][shared_memory][fault]") {
  auto const ranks = 3;
  auto const name  = job();
  auto children    = Children{ranks, [&](Rank rank, Report& report) {
                             train<RingAllReduce>(transport_of(name), ranks, rank, 1'000'000, report, [](int) {});
                           }};
  children.wait_for_step(1, 5);
  auto const stopped = children.signal(1, SIGSTOP);
  children.join(0);
  children.join(2);
  check_survivors(children, ranks, 1, Fault::peer_stalled, stopped, 800ms, 1800ms);
  children.signal(1, SIGCONT);
  children.join(1);
  CHECK(children[1].fault == Fault::evicted);
  CHECK(children[1].culprit == 1);
  CHECK_THAT(children[1].text(), Catch::Contains("silent for 800 ms") && Catch::StartsWith("chorale: rank 1 on ") &&
                                     Catch::Contains(" was given up by the other ranks in step "));
}

TEST_CASE("a process that is stopped for less than the limit is only waited for", "[transport][shared_memory][fault]") {
  auto const ranks = 2, steps = 2'000;
  auto const name = job();
  auto children   = Children{ranks, [&](Rank rank, Report& report) {
                             train<RingAllReduce>(transport_of(name), ranks, rank, steps, report, [](int) {});
                           }};
  children.wait_for_step(1, 5);
  auto const stopped = children.signal(1, SIGSTOP);
  spin_until([&] { return Clock::now() - stopped > 250ms; });
  children.signal(1, SIGCONT);
  children.join();
  for (Rank rank = 0; rank < ranks; ++rank) {
    CHECK(children[rank].text() == "");
    CHECK(children[rank].steps == steps);
    CHECK(children[rank].sum == 2.0F);
  }
}

TEMPLATE_TEST_CASE("a rank whose thread does nothing while its process lives is named, and not one that waits for it",
                   "[transport][shared_memory][fault]", RingAllReduce, DirectAllReduce) {
  auto const ranks = 4;
  auto const name  = job();
  auto children    = Children{ranks, [&](Rank rank, Report& report) {
                             train<TestType>(transport_of(name, restless), ranks, rank, 100, report, [&](int step) {
                               if (rank == 2 && step == 3) idle();
                             });
                           }};
  children.wait_for_step(2, 3);
  auto const asleep = Clock::now();
  for (Rank const rank : {0, 1, 3}) children.join(rank);
  check_survivors(children, ranks, 2, Fault::peer_stalled, asleep, 400ms, 1'500ms);  // some time is before we look
  CHECK_THAT(children[0].text(), Catch::Contains("its process lives, but it has moved nothing for 500 ms"));
}

TEST_CASE("a rank that comes late is waited for", "[transport][shared_memory][fault]") {
  auto const name = job();
  auto const body = [&](Rank rank, Report& report) {
    train<RingAllReduce>(transport_of(name), 2, rank, 10, report, [](int) {});
  };
  auto children = Children{2};
  children.start(1, body);
  wait_until_joined(name, 1);
  children.start(0, body);
  children.join();
  for (Rank rank = 0; rank < 2; ++rank) CHECK(children[rank].steps == 10);
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);
}

TEST_CASE("ranks that never come are listed when the time is over", "[transport][shared_memory][fault]") {
  auto const name  = job();
  auto const join  = SharedMemoryTransport{.name = name, .timeouts = {.join = 100ms}};
  auto const begin = Clock::now();
  try {
    join.connect(Group{4, {0, 2}});
    FAIL("it did not wait for ranks 1 and 3");
  } catch (PeerLost const& lost) {
    CHECK(lost.fault() == Fault::join_timeout);
    CHECK(lost.rank() == 1);
    CHECK_THAT(lost.what(), Catch::Contains("within 100 ms; waiting for 2 of 4: rank 1, 3"));
  }
  CHECK(Clock::now() - begin >= 100ms);
  CHECK(Clock::now() - begin <= 1'100ms);
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);
}

TEST_CASE("a process that does not fit is refused, and those that wait go on waiting",
          "[transport][shared_memory][fault]") {
  auto const name = job();
  auto const fits = SharedMemoryTransport{.name = name, .plan = "a f32[2]\nb f32[3]"};
  auto children   = Children{2};
  children.start(0, [&](Rank, Report& report) { fits.connect(Group{2, {0}}), ++report.steps; });
  wait_until_joined(name, 0);
  auto text = std::string{};

  CHECK(refused(fits, Group{2, {0}}, text) == Fault::duplicate_rank);
  CHECK_THAT(text, Catch::Contains("rank 0 of job " + name + " is process ") &&
                       Catch::Contains("process " + std::to_string(::getpid()) + " claims it, too"));
  CHECK(refused(fits, Group{3, {1}}, text) == Fault::world_mismatch);
  CHECK_THAT(text, Catch::Contains("a world of 2, and this process has 3"));
  auto again        = fits;
  again.incarnation = 1;
  CHECK(refused(again, Group{2, {1}}, text) == Fault::world_mismatch);
  CHECK_THAT(text, Catch::Contains("incarnation 0, and this process has 1"));
  auto apart     = fits;
  apart.failures = FailureScope::peer;
  CHECK(refused(apart, Group{2, {1}}, text) == Fault::world_mismatch);
  CHECK_THAT(text, Catch::Contains("failures apart: 0, and this process has 1"));

  fits.connect(Group{2, {1}});
  children.join();
  CHECK(children[0].text() == "");
  CHECK(children[0].steps == 1);
}

TEST_CASE("ranks with different models are told the first line that differs, on both ends",
          "[transport][shared_memory][fault]") {
  auto const name  = job();
  auto children    = Children{2};
  auto const arena = GENERATE(std::size_t{0}, std::size_t{576});  // room for the gradients of a larger model
  children.start(0, [&](Rank, Report&) {
    SharedMemoryTransport{.name = name, .plan = "a f32[2]\nb f32[3]"}.connect(Group{2, {0}});
  });
  wait_until_joined(name, 0);
  auto text        = std::string{};
  auto const other = SharedMemoryTransport{.name = name, .arena = arena, .plan = "a f32[2]\nb f32[4]"};
  CHECK(refused(other, Group{2, {1}}, text) == Fault::model_mismatch);
  children.join();
  CHECK(children[0].fault == Fault::model_mismatch);
  for (auto const& told : {text, children[0].text()})
    CHECK_THAT(told, Catch::Contains("rank 1 of job " + name + ": b f32[4] vs f32[3] of the ranks that came before"));
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);
}

TEST_CASE("a rank that comes after two were refused for their models is refused with them, at once",
          "[transport][shared_memory][fault]") {
  auto const name     = job();
  auto const timeouts = Timeouts{.handshake = 60s, .join = 60s};
  auto const late     = GENERATE("a f32[2]", "a f32[3]", "a f32[4]");  // as the first, the second, or none of them
  auto children       = Children{2};
  children.start(0, [&](Rank, Report&) {
    SharedMemoryTransport{.name = name, .timeouts = timeouts, .plan = "a f32[2]"}.connect(Group{3, {0}});
  });
  wait_until_joined(name, 0);
  children.start(1, [&](Rank, Report&) {
    SharedMemoryTransport{.name = name, .timeouts = timeouts, .plan = "a f32[3]"}.connect(Group{3, {1}});
  });
  wait_until_joined(name, 1);
  auto const begin = Clock::now();
  auto text        = std::string{};
  CHECK(refused({.name = name, .timeouts = timeouts, .plan = late}, Group{3, {2}}, text) == Fault::model_mismatch);
  CHECK(Clock::now() - begin < 1s);
  children.join();
  for (auto const& told : {text, children[0].text(), children[1].text()})
    CHECK_THAT(told, Catch::Contains("rank 1 of job " + name + ": a f32[3] vs f32[2] of the ranks that came before"));
  for (Rank rank = 0; rank < 2; ++rank) CHECK(children[rank].since(begin) < 1s);
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);
}

TEST_CASE("ranks with different models end without a rank that never comes", "[transport][shared_memory][fault]") {
  auto const name     = job();
  auto const timeouts = Timeouts{.handshake = 100ms, .join = 60s};
  auto children       = Children{2};
  children.start(0, [&](Rank, Report&) {
    SharedMemoryTransport{.name = name, .timeouts = timeouts, .plan = "a f32[2]"}.connect(Group{3, {0}});
  });
  wait_until_joined(name, 0);
  auto text = std::string{};
  CHECK(refused({.name = name, .timeouts = timeouts, .plan = "a f32[3]"}, Group{3, {1}}, text) ==
        Fault::model_mismatch);
  children.join();
  CHECK(children[0].fault == Fault::model_mismatch);
  CHECK_THAT(children[0].text(), Catch::Contains("a f32[3] vs f32[2]"));
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);
}

TEST_CASE("a process with another model that claims a taken rank does not disturb the job",
          "[transport][shared_memory][fault]") {
  auto const name = job();
  auto const fits = SharedMemoryTransport{.name = name, .plan = "a f32[2]"};
  auto children   = Children{2};
  children.start(0, [&](Rank, Report& report) { fits.connect(Group{2, {0}}), ++report.steps; });
  wait_until_joined(name, 0);
  auto text = std::string{};
  CHECK(refused({.name = name, .plan = "a f32[3]"}, Group{2, {0}}, text) == Fault::duplicate_rank);
  fits.connect(Group{2, {1}});
  children.join();
  CHECK(children[0].text() == "");
  CHECK(children[0].steps == 1);
}

TEST_CASE("another version of the file, and a file that is none, are refused", "[transport][shared_memory][fault]") {
  auto const name = job();
  auto const fits = SharedMemoryTransport{.name = name};
  auto children   = Children{2};
  children.start(0, [&](Rank, Report&) { fits.connect(Group{2, {0}}); });
  wait_until_joined(name, 0);
  auto const file = shared_memory::SegmentFile{name};
  auto prefix     = file.prefix();
  prefix.version  = 7;
  file.write(prefix);
  auto text = std::string{};
  CHECK(refused(fits, Group{2, {1}}, text) == Fault::version_mismatch);
  CHECK_THAT(text, Catch::Contains("wire version 7, and this process has " +
                                   std::to_string(shared_memory::segment_wire_version)));
  prefix.magic = 7;
  file.write(prefix);
  CHECK_THROWS_AS(fits.connect(Group{2, {1}}), BadFile);
  file.unlink();
}

TEST_CASE("a job's file that others may read is refused with its mode as chmod takes it",
          "[transport][shared_memory]") {
  auto const name = job();
  auto const path = shared_memory::SegmentFile::path_of(name);
  { auto const made = shared_memory::SegmentFile{name}; }
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK_THROWS_WITH(shared_memory::SegmentFile{name},
                    Catch::Contains("belongs to user ") && Catch::Contains(" with mode 0644, and"));
  CHECK(::unlink(path.c_str()) == 0);
}

TEST_CASE("the file of a job whose processes were killed is replaced", "[transport][shared_memory][fault]") {
  auto const name = job();
  auto const old  = SharedMemoryTransport{.name = name, .arena = 4'096, .plan = "another model"};
  {
    auto children = Children{3};
    children.start(0, [&](Rank, Report&) { old.connect(Group{3, {0}}); });
    wait_until_joined(name, 0);
    children.signal(0, SIGKILL);
    children.join();
  }
  REQUIRE(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) == 0);
  auto const body = [&](Rank rank, Report& report) {
    train<DirectAllReduce>(transport_of(name), 2, rank, 3, report, [](int) {});
  };
  auto children = Children{2, body};
  children.join();
  for (Rank rank = 0; rank < 2; ++rank) CHECK(children[rank].steps == 3);
  CHECK(::access(shared_memory::SegmentFile::path_of(name).c_str(), F_OK) != 0);
}

TEST_CASE("what a process says is shown without control characters", "[transport][shared_memory][fault]") {
  auto const name     = job();
  auto const evil     = std::string{"a\x1b[2J\a\nchorale: all is well"};
  auto const harmless = [](std::string const& text) {
    CHECK_THAT(text, Catch::Contains("a?[2J??chorale: all is well"));
    CHECK(text.find_first_of("\x1b\a\r") == text.npos);
    CHECK(text.find("\nchorale") == text.npos);
  };
  SECTION("when it fails") {
    auto children = Children{2, [&](Rank rank, Report&) {
                               auto endpoints = SharedMemoryTransport{.name = name}.connect(Group{2, {rank}});
                               if (rank == 0) return endpoints[0].fail(evil);
                               auto byte = std::array<std::byte, 1>{};
                               endpoints[0].recv(0, Tag{1}, byte).wait();
                             }};
    children.join();
    harmless(children[1].text());
  }
  SECTION("about its model") {
    auto children = Children{2};
    children.start(0, [&](Rank, Report&) {
      SharedMemoryTransport{.name = name, .plan = "a\x1b[2J\a\rchorale: all is well"}.connect(Group{2, {0}});
    });
    wait_until_joined(name, 0);
    auto text = std::string{};
    CHECK(refused({.name = name, .plan = "b"}, Group{2, {1}}, text) == Fault::model_mismatch);
    children.join();
    harmless(text);
    harmless(children[0].text());
  }
}

TEST_CASE("what jobs have left of which no process lives is removed by the next job, and nothing else",
          "[transport][shared_memory][fault]") {
  auto const exists = [](std::string const& file) {
    return ::access(shared_memory::SegmentFile::path_of(file).c_str(), F_OK) == 0;
  };
  auto const dead = job(), living = job(), empty = job(), foreign = job(), locked = job();
  auto children = Children{2};
  children.start(0, [&](Rank, Report&) { SharedMemoryTransport{.name = dead}.connect(Group{2, {0}}); });
  children.start(1, [&](Rank, Report&) { SharedMemoryTransport{.name = living}.connect(Group{2, {0}}); });
  wait_until_joined(dead, 0);
  wait_until_joined(living, 0);
  children.signal(0, SIGKILL);
  children.join(0);
  { auto const made = shared_memory::SegmentFile{empty}; }  // ended before it wrote anything
  auto const not_ours = shared_memory::SegmentFile{foreign}, busy = shared_memory::SegmentFile{locked};
  not_ours.write({.magic = 7});
  REQUIRE(busy.try_lock());
  for (auto const& name : {dead, living, empty, foreign, locked}) REQUIRE(exists(name));

  SharedMemoryTransport{.name = job()}.connect(Group{1, {0}});
  CHECK_FALSE(exists(dead));
  CHECK_FALSE(exists(empty));
  CHECK(exists(living));
  CHECK(exists(foreign));
  CHECK(exists(locked));
  not_ours.unlink();
  busy.unlink();
  SharedMemoryTransport{.name = living}.connect(Group{2, {1}});
  children.join();
  CHECK(children[1].text() == "");
}

TEST_CASE("a rank that died while others wait for more can be replaced", "[transport][shared_memory][fault]") {
  auto const name = job();
  auto const body = [&](Rank rank, Report& report) {
    train<DirectAllReduce>(transport_of(name), 3, rank, 3, report, [](int) {});
  };
  auto children = Children{3};
  for (Rank const rank : {0, 1}) {
    children.start(rank, body);
    wait_until_joined(name, rank);
  }
  children.signal(1, SIGKILL);
  children.join(1);
  for (Rank const rank : {2, 1}) children.start(rank, body);
  children.join();
  for (Rank rank = 0; rank < 3; ++rank) CHECK(children[rank].steps == 3);
}

TEST_CASE("who is missing is told in one line", "[transport][shared_memory][unit]") {
  CHECK(shared_memory::Rendezvous::waiting_text({3}, 4) == "waiting for 1 of 4: rank 3");
  CHECK(shared_memory::Rendezvous::waiting_text({1, 2}, 4) == "waiting for 2 of 4: rank 1, 2");
}
