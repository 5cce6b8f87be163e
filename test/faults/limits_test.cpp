// SPDX-License-Identifier: Apache-2.0
// One rank's process runs out of descriptors or memory: rows T37 and T38 of docs/65-robustness.md.
#include "test/support/limits.hpp"
#include "test/faults/told.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto no_descriptors = "a sanitizer opens files of its own";

}  // namespace

TEST_CASE("T37: a rank that lacks descriptors while it joins is told so, and the others whom they miss",
          "[faults][limits]") {
  if (opens_pipes) return skip("T37, joining", no_descriptors);
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(8), .timeouts = {.join = 900ms}};
  auto const since     = seconds_now();
  auto processes       = Processes{2, [&](Rank process, Voice voice) {
                               auto quiet = transport;
                               quiet.log  = [](std::string const&) {};
                               if (process == 0) {
                                 quiet.connect(Group{8, {0, 1, 2, 3, 4, 5, 6}});
                               } else {
                                 set_limit(RLIMIT_NOFILE, 20);
                                 quiet.connect(Group{8, {7}});
                               }
                               voice.say("joined");
                             }};
  CHECK_THAT(processes.line(1), Catch::Contains("EMFILE") && Catch::Contains("ulimit -n"));
  CHECK(seconds_now() - since < 1);
  CHECK(processes.exit(1) == 1);
  CHECK_THAT(processes.line(0), Catch::Contains("lost rank 7") && Catch::Contains(transport.addresses[7]));
  CHECK(processes.exit(0) == 138);
  CHECK(seconds_now() - since > 0.9);
  CHECK(seconds_now() - since < 1.9);
}

TEST_CASE("T37: a rank that lacks descriptors while it trains does not notice, whoever knocks", "[faults][limits]") {
  if (opens_pipes) return skip("T37, training", no_descriptors);
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(3), .timeouts = {.join = 20s}};
  auto processes =
      Processes{3, [&](Rank rank, Voice voice) {
                  auto quiet   = transport;
                  quiet.log    = [](std::string const&) {};
                  auto at      = connected(quiet, 3, rank);
                  auto weights = Weights{3, 1'000};
                  if (rank == 0) set_limit(RLIMIT_NOFILE, 3);  // what is open stays open
                  tell_end(voice, weights, [&] {
                    for (std::uint64_t step = 0; step < 50; ++step) {
                      begin_step(at, step);
                      if (rank == 1 && step % 5 == 0) {
                        auto stranger = asio::io_context{};
                        auto const to = TcpAddress::parse(transport.addresses[0]);
                        asio::ip::tcp::socket{stranger}.connect({asio::ip::make_address(to.host), to.port});
                      }
                      RingAllReduce{}.all_reduce(at, weights.gradient(rank), Op::sum);
                      weights.apply();
                    }
                  });
                }};
  for (Rank rank = 0; rank < 3; ++rank) {
    auto const told = Told::parse(processes.line(rank));
    INFO("rank " << rank << ": " << told.line());
    CHECK(told.fault == -1);
    CHECK(told.whole);
    CHECK(processes.exit(rank) == 0);
  }
}

TEST_CASE("T37: over shared memory a rank that lacks descriptors says so, and takes nobody for dead",
          "[faults][limits]") {
  if (opens_pipes) return skip("T37, shared memory", no_descriptors);
  auto const free      = GENERATE(0, 1, 2);  // 2 are enough to join, 3 to watch rank 0
  auto const transport = between_processes<SharedMemoryTransport>(2, {.join = 20s});
  auto processes       = Processes{2, [&](Rank rank, Voice voice) {
                               if (rank == 1) {
                                 auto const is_there = [&] {
                                   return shared_memory::SegmentFile{transport.name}.prefix().processes[0].process != 0;
                                 };
                                 spin_until(is_there);
                                 auto last = 0;
                                 for (int i = 0; i < 256; ++i)
                                   if (::fcntl(i, F_GETFD) >= 0) last = i;
                                 auto next = ::dup(2);
                                 while (next < last) next = ::dup(2);  // so that there is no hole below
                                 ::close(next);
                                 set_limit(RLIMIT_NOFILE, static_cast<rlim_t>(next + free));
                                 try {
                                   connected(transport, 2, rank);
                                   voice.say("joined");
                                 } catch (OutOfDescriptors const& error) { voice.say(error.what()); }
                                 set_limit(RLIMIT_NOFILE, static_cast<rlim_t>(next + 20));
                                 if (free >= 2) return;
                               }
                               auto at   = connected(transport, 2, rank);  // rank 0 was there all the time
                               auto byte = std::array<std::byte, 1>{};
                               if (rank == 0) at.recv(1, Tag{1}, byte).wait();
                               else at.send(0, Tag{1}, byte).wait();
                               voice.say("joined");
                             }};
  CHECK_THAT(processes.line(1), Catch::Contains("chorale: rank 1 has no file descriptors left (limit ") &&
                                    Catch::Contains("Try: a higher limit (ulimit -n)"));
  if (free < 2) {
    CHECK(processes.line(1) == "joined");
    CHECK(processes.line(0) == "joined");
  } else {
    CHECK_THAT(processes.line(0), Catch::Contains("lost rank 1") &&  // all were there: the others are told
                                      Catch::Contains("it has no file descriptors left (limit "));
  }
}

TEST_CASE("T38: a full /dev/shm is told with what it has, and the ranks that wait are told at once",
          "[faults][limits]") {
  auto processes = Processes{
      1, [](Rank, Voice voice) {
        auto const apart = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
        if (!apart || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("small", "/dev/shm", "tmpfs", 0, "size=4m") != 0)
          return voice.say("not allowed");
        auto const transport =
            SharedMemoryTransport{.name = "full", .timeouts = {.join = 20s}, .arena = 3 << 20, .ring = 8'192};
        auto const since = seconds_now();
        auto ranks       = Processes{2, [&](Rank rank, Voice) {
                                 auto const is_there = [&] {
                                   return shared_memory::SegmentFile{transport.name}.prefix().processes[0].process != 0;
                                 };
                                 if (rank == 1) spin_until(is_there);
                                 connected(transport, 2, rank);
                               }};
        for (Rank const rank : {1, 0}) {
          voice.say(ranks.line(rank));
          voice.say(std::to_string(ranks.exit(rank)));
        }
        voice.say(std::to_string(seconds_now() - since));
        voice.say(::access(shared_memory::SegmentFile::path_of("full").c_str(), F_OK) == 0 ? "left" : "gone");
      }};
  auto const second = processes.line(0);
  if (second == "not allowed") return skip("T38, /dev/shm", "it needs a namespace of mounts");
  CHECK_THAT(second, Catch::Contains("rank 1 needs 3145728 bytes of shared memory, and /dev/shm has ") &&
                         Catch::Contains(" of 4194304 bytes left. ") && Catch::Contains("--shm-size"));
  CHECK(processes.line(0) == "1");
  CHECK_THAT(processes.line(0), Catch::Contains("rank 0 lost rank 1") && Catch::Contains("too little shared memory"));
  CHECK(processes.line(0) == "138");
  CHECK(std::stod(processes.line(0)) < 5);
  CHECK(processes.line(0) == "gone");
}

TEMPLATE_TEST_CASE("T38: a rank that has no memory left says so, and is the first cause for all others",
                   "[faults][limits]", TcpTransport, SharedMemoryTransport) {
  if (has_shadow) return skip("T38, training", no_limit);
  auto const ranks     = GENERATE(2, 3, 4);
  auto const transport = between_processes<TestType>(ranks, {.join = 20s});
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) {
                               auto at      = connected(transport, ranks, rank);
                               auto weights = Weights{ranks};
                               if (rank == 1) set_limit(RLIMIT_AS, address_space() + (8 << 20));
                               tell_end(voice, weights, [&] {
                                 try {
                                   for (std::uint64_t step = 0;; ++step) {
                                     begin_step(at, step);
                                     auto const batch = std::vector<float>(rank == 1 && step == 5 ? 16 << 20 : 16);
                                     RingAllReduce{}.all_reduce(at, weights.gradient(rank), Op::sum);
                                     weights.apply();
                                   }
                                 } catch (std::bad_alloc const& error) {
                                   voice.say(std::to_string(seconds_now()));
                                   fail(at, std::string{"no memory: "} + error.what());
                                   throw;
                                 }
                               });
                             }};
  auto const since     = std::stod(processes.line(1));
  for (auto const& told : check_survivors(processes, ranks, 1, Fault::peer_lost, since, 0, 1))
    CHECK_THAT(told.text, Catch::Contains("no memory: std::bad_alloc"));
  CHECK_THAT(processes.line(1), Catch::Contains("bad_alloc"));
  CHECK(processes.exit(1) == 1);
}

TEMPLATE_TEST_CASE("T38: a rank that cannot even join for lack of memory is missed by the others", "[faults][limits]",
                   TcpTransport, SharedMemoryTransport) {
  if (has_shadow) return skip("T38, joining", no_limit);
  auto const transport = between_processes<TestType>(3, {.join = 700ms});
  auto const since     = seconds_now();
  auto processes       = Processes{3, [&](Rank rank, Voice) {
                               if (rank == 1) set_limit(RLIMIT_AS, address_space());
                               connected(transport, 3, rank);
                             }};
  CHECK_THAT(processes.line(1), Catch::Contains("bad_alloc") || Catch::Contains("Cannot allocate memory") ||
                                    (Catch::Contains("cannot start: ") && Catch::Contains("more memory")));  // a thread
  CHECK(processes.exit(1) == 1);
  for (Rank const rank : {0, 2}) {
    CHECK_THAT(processes.line(rank),
               Catch::Contains(": rank 1") || Catch::Contains(": rank 0, 1"));  // rank 0 had given up already
    CHECK(processes.exit(rank) == 138);
  }
  CHECK(seconds_now() - since > 0.7);
  CHECK(seconds_now() - since < 1.7);
}
