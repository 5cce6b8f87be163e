// SPDX-License-Identifier: Apache-2.0
//
// A disk that takes longer for a checkpoint than ranks may hang, to write or to read it: nobody takes the chief for one
// that does.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

namespace slow_save_test {

using namespace chorale;
using namespace std::chrono_literals;
using chorale::test::Processes;
using chorale::test::Voice;

namespace {

std::atomic<bool> is_slow      = false;  // the next fsync
std::atomic<bool> reads_slowly = false;  // the next pread
constexpr auto limits          = Timeouts{.warn_stuck = 2s, .stuck = 3s, .join = 60s};

/// Trains on two ranks, and saves every second update. The chief's disk is slow once, at this.
template <class T> void train(Saving saving, T transport, std::atomic<bool>& slow = is_slow) {
  transport.timeouts   = limits;
  auto const folder    = chorale::test::Folder{};
  auto const addresses = free_loopback_addresses(2);
  auto ranks           = Processes{
      2,
      [&](int me, Voice voice) {
        auto const cluster =
            Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
        auto one = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                           MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}, Reproducible<8>{}, transport, 7};
        auto const fit = [&](int epochs) {
          one.fit(tiny::uneven(), {.epochs           = epochs,
                                             .show             = Show::nothing,
                                             .checkpoints      = {.folder = folder.path, .saving = saving},
                                             .checkpoint_every = 2});
        };
        if (&slow == &reads_slowly) fit(1);  // so that there is one to read
        slow = me == 0;
        fit(2);
        voice.say(slow ? "nothing was slow" : "ended");
      },
      120};
  for (int i = 0; i < 2; ++i) CHECK(ranks.line(i) == "ended");
}

}  // namespace

TEST_CASE("reading a checkpoint may take longer than a rank may hang", "[trainer][checkpoint][processes]") {
  SECTION("TCP") { train(Saving::now, TcpTransport{}, reads_slowly); }
  SECTION("shared memory") { train(Saving::now, SharedMemoryTransport{}, reads_slowly); }
}

TEST_CASE("a save that takes longer than a rank may hang loses no rank", "[trainer][checkpoint][processes]") {
  SECTION("TCP, now") { train(Saving::now, TcpTransport{}); }
  SECTION("shared memory, now") { train(Saving::now, SharedMemoryTransport{}); }
  SECTION("shared memory, behind") { train(Saving::behind, SharedMemoryTransport{}); }
}

}  // namespace slow_save_test

/// In place of the C library's: once, when a test asks for it, seven seconds late.
extern "C" ssize_t pread(int file, void* to, std::size_t n, off_t at) {
  if (slow_save_test::reads_slowly.exchange(false)) std::this_thread::sleep_for(std::chrono::seconds{7});
  return ::syscall(SYS_pread64, file, to, n, at);
}
extern "C" int fsync(int file) {
  if (slow_save_test::is_slow.exchange(false)) std::this_thread::sleep_for(std::chrono::seconds{7});
  return static_cast<int>(::syscall(SYS_fsync, file));
}
