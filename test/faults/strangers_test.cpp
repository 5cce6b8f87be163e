// SPDX-License-Identifier: Apache-2.0
// Who comes late, twice or from elsewhere, and bytes that change on the way: rows T12 to T21 and T35 of
// docs/65-robustness.md. Ranks are threads here.
#include "test/faults/proxy.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace strangers_test {

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

/// Lines for people, of all ranks that were given its log().
class Lines {
 public:
  std::function<void(std::string const&)> log() {
    return [this](std::string const& line) {
      auto const lock = std::scoped_lock{mutex_};
      lines_.push_back(line);
    };
  }
  std::vector<std::string> with(std::string const& text) const {
    auto const lock = std::scoped_lock{mutex_};
    auto found      = std::vector<std::string>{};
    std::ranges::copy_if(lines_, std::back_inserter(found), [&](auto const& l) { return l.find(text) != l.npos; });
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// Waits until `done()`, or fails the test after 10 s.
template <class Done> void expect_soon(Done done) {
  auto const deadline = Deadline::after(10s);
  spin_until([&] { return done() || deadline.passed(); });
  REQUIRE(done());
}

struct Outcome {
  std::vector<float> x;
  std::string error;
  Loss loss{.rank = -1};
  int fault = -1;  // a Fault
};

/// What a rank adds up in a step; of many magnitudes, so that another order of a sum would show.
float value_of(Rank rank, std::size_t i, int step) {
  return static_cast<float>(rank + 1) / static_cast<float>(3 + (i * 7 + static_cast<std::size_t>(step)) % 11);
}

/// Joins, and trains for some steps; `before` is called with the number of each.
template <class Before>
Outcome take_part(TcpTransport const& transport, int ranks, Rank rank, int steps, Before before) {
  auto outcome = Outcome{};
  outcome.x.assign(20'011, 0.0F);
  auto gradient = outcome.x;
  try {
    auto at = std::move(transport.connect(Group{ranks, {rank}})[0]);
    for (int step = 0; step < steps; ++step) {
      at.begin_step(static_cast<std::uint64_t>(step));
      before(step);
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = value_of(rank, i, step);
      RingAllReduce{}.all_reduce(at, Span<float>{gradient}, Op::sum, Tag{}, CallSite{"train.cpp", 41});
      for (std::size_t i = 0; i < gradient.size(); ++i) outcome.x[i] += gradient[i];
    }
  } catch (PeerLost const& lost) {
    outcome.error = lost.what();
    outcome.loss  = lost.loss();
    outcome.fault = static_cast<int>(lost.fault());
  } catch (Disagreement const& error) {
    outcome.error = error.what();
    outcome.fault = static_cast<int>(error.fault());
  }
  return outcome;
}

/// Ranks of one job, each a thread with a transport of its own. A test that hangs is ended.
class RankThreads {
 public:
  explicit RankThreads(int ranks) : outcomes_(static_cast<std::size_t>(ranks)) { ::alarm(60); }
  ~RankThreads() {
    threads_.clear();
    ::alarm(0);
  }
  RankThreads(RankThreads const&)            = delete;
  RankThreads& operator=(RankThreads const&) = delete;

  template <class Before> void start(TcpTransport const& transport, Rank rank, int steps, Before before) {
    auto& outcome = outcomes_[static_cast<std::size_t>(rank)];
    auto const n  = static_cast<int>(outcomes_.size());
    threads_.emplace_back("rank " + std::to_string(rank),
                          [=, &outcome] { outcome = take_part(transport, n, rank, steps, before); });
  }
  void start(TcpTransport const& transport, Rank rank, int steps = 10) {
    start(transport, rank, steps, [](int) {});
  }

  std::vector<Outcome> const& join() {
    threads_.clear();
    return outcomes_;
  }

 private:
  std::vector<Outcome> outcomes_;
  std::vector<NamedThread> threads_;
};

TcpTransport transport_of(std::vector<std::string> addresses, Lines& lines) {
  return {.addresses = std::move(addresses), .timeouts = {.join = 20s}, .report_every = 20ms, .log = lines.log()};
}

void check_like_undisturbed(std::vector<Outcome> const& outcomes, int steps) {
  auto quiet           = Lines{};
  auto clean           = RankThreads{static_cast<int>(outcomes.size())};
  auto const transport = transport_of(free_loopback_addresses(static_cast<int>(outcomes.size())), quiet);
  for (Rank rank = 0; rank < static_cast<Rank>(outcomes.size()); ++rank) clean.start(transport, rank, steps);
  auto const& right = clean.join();
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    CHECK(outcomes[rank].error == "");
    CHECK(outcomes[rank].x == right[rank].x);
  }
}

constexpr std::size_t shaken = 112 + 44;  // bytes of a caller's handshake

/// Three ranks, where bytes of the data connection from rank 2 to rank 0 go through `passes`.
std::vector<Outcome> with_proxy(Proxy::Passes passes) {
  auto lines           = Lines{};
  auto const addresses = free_loopback_addresses(4);
  auto const right     = std::vector<std::string>(addresses.begin(), addresses.begin() + 3);
  auto around          = right;
  around[0]            = addresses[3];
  auto const proxy     = Proxy{around[0], right[0], std::move(passes)};
  auto job             = RankThreads{3};
  job.start(transport_of(right, lines), 0);
  job.start(transport_of(right, lines), 1);
  job.start(transport_of(around, lines), 2);
  return job.join();
}

/// All tell one loss. Of the two ends of a connection one is the culprit, and is told that the others went on.
void check_same_loss(std::vector<Outcome> const& outcomes, Fault fault, std::string const& reason) {
  auto const& first = outcomes[1].loss;
  CHECK((first.rank == 0 || first.rank == 2));
  for (Rank rank = 0; rank < 3; ++rank) {
    auto const& o = outcomes[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << o.error);
    CHECK(o.loss.rank == first.rank);
    CHECK(o.loss.sequence == first.sequence);
    CHECK(o.loss.step == first.step);
    CHECK(o.loss.operation == first.operation);
    CHECK((o.fault == static_cast<int>(fault) || (o.fault == static_cast<int>(Fault::evicted) && rank == first.rank)));
    CHECK_THAT(o.error, Catch::Contains(reason));
  }
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool keeps_freed_memory = true;
#else
constexpr bool keeps_freed_memory = false;
#endif

long resident_kibibytes() {
  auto pages = 0L, resident = 0L;
  std::ifstream{"/proc/self/statm"} >> pages >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace

TEST_CASE("T12, T16: a connection that is reset after any byte of a frame is one loss for all, within a second",
          "[faults][strangers]") {
  auto const k     = shaken + GENERATE(as<std::size_t>{}, 0, 1, 63, 64, 65, 9'000);
  auto const begin = Clock::now();
  auto const ended = with_proxy([k](std::size_t connection, std::size_t before, Bytes bytes) {
    return connection == 1 && before + bytes.size() > k ? k - std::min(k, before) : bytes.size();
  });
  CHECK(Clock::now() - begin < 1s);
  INFO("byte " << k - shaken);
  check_same_loss(ended, Fault::peer_lost, "connection");
}

TEST_CASE("T18: a bit that flips on the way is one loss for all, and the sum of that step is not applied",
          "[faults][strangers]") {
  auto const k     = shaken + GENERATE(as<std::size_t>{}, 2, 17, 33, 60, 64, 9'000);
  auto const begin = Clock::now();
  auto const ended = with_proxy([k](std::size_t connection, std::size_t before, Bytes bytes) {
    if (connection == 1 && before <= k && k < before + bytes.size()) bytes[k - before] ^= std::byte{8};
    return bytes.size();
  });
  CHECK(Clock::now() - begin < 1s);
  INFO("byte " << k - shaken);
  check_same_loss(ended, Fault::frame_corrupt, "from it");
  for (auto const& rank : ended) CHECK(std::ranges::count(rank.x, 0.0F) == 20'011);
}

TEST_CASE("T13: two hundred connections that are reset while ranks train change no bit, and fill no log",
          "[faults][strangers]") {
  auto const ranks     = GENERATE(2, 3, 4);
  constexpr int scans  = 200;
  auto lines           = Lines{};
  auto const transport = transport_of(free_loopback_addresses(ranks), lines);
  auto scanned = std::atomic<int>{0}, trained = std::atomic<int>{0};
  auto job = RankThreads{ranks};
  for (Rank rank = 0; rank < ranks; ++rank)
    job.start(transport, rank, scans, [&, rank](int step) {  // one scan a step
      if (rank == 0) trained = step + 1;
      spin_until([&] { return scanned > step; });
    });
  for (int i = 0; i < scans; ++i) {
    spin_until([&] { return trained > i; });
    auto guest = connect_to(transport.addresses[static_cast<std::size_t>(i % ranks)]);
    if (i % 2 == 0) send_all(guest, std::as_bytes(Span<char const>{"SSH-", 4}));
    reset(std::move(guest));
    ++scanned;
  }
  check_like_undisturbed(job.join(), scans);
  CHECK(lines.with("a connection from 127.0.0.1:").size() <= static_cast<std::size_t>(ranks));  // one each in 10 s
  CHECK(lines.with("was refused").size() <= static_cast<std::size_t>(2 * ranks));  // and whose address has gone
}

TEST_CASE("T14: a thousand strangers with a megabyte each take no memory", "[faults][strangers]") {
  auto lines           = Lines{};
  auto const transport = transport_of(free_loopback_addresses(2), lines);
  auto const noise     = std::vector<std::byte>(1 << 20, std::byte{0x5A});
  auto job             = RankThreads{2};
  auto may_end         = std::atomic<bool>{false};
  for (Rank rank = 0; rank < 2; ++rank)
    job.start(transport, rank, 2, [&](int step) {
      if (step == 1) spin_until([&] { return may_end.load(); });
    });
  for (int i = 0; i < 50; ++i) send_all(connect_to(transport.addresses[0]), noise);
  auto const before = resident_kibibytes();
  for (int i = 0; i < 1'000; ++i) send_all(connect_to(transport.addresses[0]), noise);
  if (!keeps_freed_memory) CHECK(resident_kibibytes() - before < 1024);
  may_end = true;
  check_like_undisturbed(job.join(), 2);
}

TEST_CASE("T20: a handshake that was recorded opens nothing when it is played to the next start of the job",
          "[faults][strangers]") {
  auto lines   = Lines{};
  auto secret  = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, at least"}})};
  auto right   = free_loopback_addresses(3);
  auto around  = std::vector{right[2], right[1]};
  auto records = std::array<std::vector<std::byte>, 2>{};
  right.pop_back();
  {
    auto const proxy = Proxy{around[0], right[0], [&](std::size_t connection, std::size_t, Bytes bytes) {
                               records.at(connection).insert(records.at(connection).end(), bytes.begin(), bytes.end());
                               return bytes.size();
                             }};
    auto first       = RankThreads{2};
    for (Rank rank = 0; rank < 2; ++rank) {
      auto transport   = transport_of(rank == 0 ? right : around, lines);
      transport.secret = secret;
      first.start(transport, rank);
    }
    check_like_undisturbed(first.join(), 10);
  }
  REQUIRE(records[1].size() > shaken);
  auto again          = transport_of(right, lines);
  again.secret        = secret;
  again.timeouts.join = 500ms;
  auto second         = RankThreads{2};
  second.start(again, 0);
  for (auto const& record : records) {
    auto guest = connect_to(right[0]);
    send_all(guest, record);
    auto bytes = std::array<std::byte, 4096>{};
    while (::recv(guest.number(), bytes.data(), bytes.size(), 0) > 0) {}  // until it is shown out
  }
  auto const& ended = second.join();
  CHECK(ended[0].fault == static_cast<int>(Fault::join_timeout));
  CHECK_THAT(ended[0].error, Catch::Contains("rank 1 (" + right[1] + "): has not called"));
  CHECK(lines.with("secret").size() == 1);
}

TEST_CASE("T21: of ranks 0, 1, 1 and 3 the second 1 is told of the first, and a right rank 2 still joins",
          "[faults][strangers]") {
  auto lines           = Lines{};
  auto const transport = transport_of(free_loopback_addresses(4), lines);
  auto job             = RankThreads{4};
  for (Rank const rank : {0, 1, 3}) job.start(transport, rank);
  expect_soon([&] { return !lines.with("rank 0: waiting for 1 of 4: rank 2").empty(); });
  auto second         = transport;
  second.addresses[1] = "127.0.0.1:0";  // as it would be on another host
  auto const begin    = Clock::now();
  auto const refused  = take_part(second, 4, 1, 1, [](int) {});
  CHECK(Clock::now() - begin < 5s);
  CHECK(refused.fault == static_cast<int>(Fault::duplicate_rank));
  CHECK_THAT(refused.error, Catch::Contains("two processes claim to be rank 1") &&
                                Catch::Contains("the first called rank 0 from 127.0.0.1:") &&
                                Catch::Contains(", the second from 127.0.0.1:"));
  CHECK_THROWS_WITH(take_part(transport, 4, 1, 1, [](int) {}), Catch::Contains("rank 1 cannot listen on"));  // here
  job.start(transport, 2);
  check_like_undisturbed(job.join(), 10);
}

TEST_CASE("T35: a rank that comes late is waited for, and everybody says for whom", "[faults][strangers]") {
  auto const ranks     = GENERATE(2, 3, 4);
  auto lines           = Lines{};
  auto const transport = transport_of(free_loopback_addresses(ranks), lines);
  auto const late      = ranks - 1;
  auto job             = RankThreads{ranks};
  for (Rank rank = 0; rank < late; ++rank) job.start(transport, rank);
  for (Rank rank = 0; rank < late; ++rank)
    expect_soon([&] {
      return lines
                 .with("rank " + std::to_string(rank) + ": waiting for 1 of " + std::to_string(ranks) + ": rank " +
                       std::to_string(late) + " (" + transport.addresses[static_cast<std::size_t>(late)] + ")")
                 .size() >= 2;
    });
  job.start(transport, late);
  check_like_undisturbed(job.join(), 10);
}

}  // namespace strangers_test
