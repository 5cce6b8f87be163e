// SPDX-License-Identifier: Apache-2.0
//
// A coordinator and its workers as threads, without servers: what becomes of closures, their errors and their data.
#include <chorale/core/threads.hpp>
#include <chorale/data/stages/filter.hpp>
#include <chorale/data/stages/generator.hpp>
#include <chorale/strategy/coordinator/coordinator.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

using namespace chorale;

namespace {

/// What closures find on a worker here: nothing but its number.
struct Here {
  int worker;
};
using At = LocalEndpoint;

/// Runs program(coordinator) on rank 0, and workers behind it; then come ranks that only end when all have.
template <class... Known, class Program>
void coordinated(int workers, std::tuple<Known...> const& known, Program program, CoordinatorOptions options = {}) {
  auto endpoints = LocalTransport{.failures = FailureScope::peer}.connect(Group::all_local(1 + workers));
  auto threads   = std::vector<NamedThread>{};
  for (int w = 0; w < workers; ++w)
    threads.emplace_back("worker", [&, w] {
      auto& at  = endpoints[static_cast<std::size_t>(w + 1)];
      auto here = Here{w};
      try {
        ClosureWorker{at, here, known, options}.serve();
      } catch (std::exception const& error) { fail(at, error.what()); }
    });
  auto coordinator = Coordinator<At, Here>{endpoints[0], workers, options};
  program(coordinator);
  coordinator.leave();
  threads.clear();
}

using IntegerRow = data::Integers::element;

/// The numbers 100 s to 100 s + 9 in share s; in pass p all of them 1000 p more.
auto numbers(std::string const& name = "numbers") {
  return PerWorkerDataset<IntegerRow>{
      name, [](WorkerShare share) {
        return data::from_generator<std::int64_t, std::int64_t>([share](std::size_t pass) {
          return [share, pass, i = 0](std::vector<std::int64_t>& x, std::vector<std::int64_t>&) mutable {
            x.assign(1, 100 * share.index + i + 1'000 * static_cast<int>(pass));
            return i++ < 10;
          };
        });
      }};
}

struct Taken {
  int worker;
  std::int64_t first, second;
};

/// Waits for a flag that another thread sets.
void await(std::atomic<bool> const& flag) {
  spin_until([&] { return flag.load(std::memory_order_acquire); });
}

}  // namespace

TEST_CASE("each of 200 closures runs once, and its result is the one of its arguments", "[strategy][coordinator]") {
  auto const workers = GENERATE(1, 2, 3);
  auto runs          = std::array<std::atomic<int>, 200>{};
  auto const square  = Closure{"square", [&](Here&, int i, double by) {
                                ++runs[static_cast<std::size_t>(i)];
                                return i * i * by;
                              }};
  coordinated(workers, std::tuple{square}, [&](auto& coordinator) {
    auto results = std::vector<RemoteValue<double>>{};
    for (int i = 0; i < 200; ++i) results.push_back(coordinator.schedule(square, i, 0.5));
    coordinator.join();
    CHECK(coordinator.done());
    CHECK(std::ranges::all_of(results, &RemoteValue<double>::ready));
    auto const values = coordinator.fetch(results);
    for (int i = 0; i < 200; ++i) CHECK(values[static_cast<std::size_t>(i)] == i * i * 0.5);
    CHECK(coordinator.repeated() == 0);
  });
  for (auto const& n : runs) CHECK(n == 1);
}

TEST_CASE("a closure is dealt to a worker that is free, while another one still computes", "[strategy][coordinator]") {
  auto go         = std::atomic<bool>{false};
  auto const slow = Closure{"slow", [&](Here& here) {
                              await(go);
                              return here.worker;
                            }};
  auto const fast = Closure{"fast", [](auto& here) noexcept { return here.worker; }};
  coordinated(2, std::tuple{slow, fast}, [&](auto& coordinator) {
    auto const held = coordinator.schedule(slow);
    for (int i = 0; i < 20; ++i) CHECK(coordinator.fetch(coordinator.schedule(fast)) == 1);
    CHECK(!held.ready());
    CHECK(!coordinator.done());
    go = true;
    CHECK(coordinator.fetch(held) == 0);
    CHECK(coordinator.done());
  });
}

TEST_CASE("arguments and results may be structs, strings, vectors, or nothing", "[strategy][coordinator]") {
  struct Pair {
    int a;
    double b;
  };
  auto kept = std::atomic<int>{0};
  auto const join_ =
      Closure{"join", [](Here&, std::string const& text, std::vector<float> x, Pair p, bool empty) {
                return text + " " + std::to_string(x.size() + static_cast<std::size_t>(p.a)) + (empty ? "" : " full");
              }};
  auto const nothing = Closure{"nothing", [&](Here&, int n) noexcept { kept += n; }};
  auto const iota    = Closure{"iota", [](Here&, std::size_t n) {
                              auto all = std::vector<std::int64_t>(n);
                              std::iota(all.begin(), all.end(), std::int64_t{0});
                              return all;
                            }};
  coordinated(2, std::tuple{join_, nothing, iota}, [&](auto& coordinator) {
    CHECK(coordinator.fetch(coordinator.schedule(join_, "so many:", std::vector<float>(3), Pair{4, 0}, false)) ==
          "so many: 7 full");
    CHECK(coordinator.fetch(coordinator.schedule(join_, "", std::vector<float>{}, Pair{0, 0}, true)) == " 0");
    coordinator.fetch(coordinator.schedule(nothing, 3));
    CHECK(kept == 3);
    CHECK(coordinator.fetch(coordinator.schedule(iota, 0U)).empty());
    auto const many = coordinator.fetch(coordinator.schedule(iota, 300'000U));  // several messages
    CHECK(many.size() == 300'000);
    CHECK(many.back() == 299'999);
  });
}

TEST_CASE("schedule() waits when as many closures wait as may", "[strategy][coordinator]") {
  auto ran         = std::atomic<int>{0};
  auto const count = Closure{"count", [&](Here&) { ++ran; }};
  coordinated(1, std::tuple{count},
              [&](auto& coordinator) {
                for (int i = 0; i < 50; ++i) {
                  coordinator.schedule(count);
                  CHECK(ran >= i - 3);  // 2 wait, 1 runs, 1 has just been added
                }
                coordinator.join();
                CHECK(ran == 50);
              },
              {.queue = 2});
}

TEST_CASE("what a closure throws comes out of join with its name, and what had not begun is cancelled",
          "[strategy][coordinator]") {
  auto ran         = std::atomic<int>{0};
  auto const count = Closure{"count", [&](Here&) { return ++ran; }};
  auto const wrong =
      Closure{"divide", [](Here&, int by) -> int {
                throw NumericFault{"7 cannot be divided by " + std::to_string(by) + ".", "another number."};
              }};
  coordinated(1, std::tuple{count, wrong}, [&](auto& coordinator) {
    auto const before = coordinator.schedule(count);
    auto const failed = coordinator.schedule(wrong, 0);
    auto const after  = coordinator.schedule(count);
    auto const first  = "closure \"divide\" failed on worker 0: 7 cannot be divided by 0.\n         Try: another";
    CHECK_THROWS_WITH(coordinator.join(), Catch::Contains(first));
    CHECK(coordinator.fetch(before) == 1);
    CHECK_THROWS_AS(coordinator.fetch(failed), NumericFault);
    CHECK_THROWS_WITH(coordinator.fetch(after), Catch::Contains("closure \"count\" was cancelled: closure \"divide\""));
    CHECK(ran == 1);
    coordinator.join();  // the error was told
    CHECK(coordinator.fetch(coordinator.schedule(count)) == 2);

    coordinator.schedule(wrong, 1);
    CHECK_THROWS_AS(coordinator.join(), NumericFault);
    auto const next = coordinator.schedule(wrong, 2);
    CHECK_THROWS_AS(coordinator.fetch(next), NumericFault);  // join() has not told it yet
    CHECK_THROWS_WITH(coordinator.fetch(coordinator.schedule(count)), Catch::Contains("failed before join()"));
    CHECK_THROWS_WITH(coordinator.join(), Catch::Contains("by 2"));
  });
}

TEST_CASE("a closure or a dataset that a worker does not know is an error that says so", "[strategy][coordinator]") {
  auto const known   = Closure{"known", [](Here&) {}};
  auto const unknown = Closure{"unknown", [](Here&) {}};
  auto const other   = Closure{"known", [](Here&, int) {}};
  auto const reads   = Closure{"reads", [](Here&, WorkerStream<IntegerRow>&) {}};
  coordinated(1, std::tuple{known, reads}, [&](auto& coordinator) {
    coordinator.schedule(unknown);
    CHECK_THROWS_WITH(coordinator.join(),
                      Catch::Contains("\"unknown\" failed on worker 0: rank 1 knows no such closure"));
    coordinator.schedule(other, 1);
    CHECK_THROWS_WITH(coordinator.join(), Catch::Contains("4 bytes of arguments are left"));
    coordinator.schedule(reads, coordinator.create_per_worker_dataset(numbers()));
    CHECK_THROWS_AS(coordinator.join(), Disagreement);
    CHECK_THROWS_WITH(coordinator.create_per_worker_dataset(numbers()), Catch::Contains("created before"));
  });
}

TEST_CASE("a worker that sends what is no reply is lost with the reason, and its closure runs elsewhere",
          "[strategy][coordinator]") {
  struct Reply {
    char const* reason;
    void (*change)(detail::ClosureReply&);
    std::size_t bytes = sizeof(detail::ClosureReply);
  };
  auto const sent  = GENERATE(values<Reply>({
      {"rank 2 sent 7 bytes where rank 0 expected", [](auto&) {}, 7},
      {"rank 2 sent 1 bytes where rank 0 expected 524288 bytes", [](auto& r) { r.bytes = detail::closure_limit; }},
      {"worker 1 (rank 2) sent what is no reply", [](auto& r) { r.magic ^= 1; }},
      {"worker 1 (rank 2) sent what is no reply", [](auto& r) { ++r.number; }},
      {"worker 1 (rank 2) sent what is no reply", [](auto& r) { r.bytes = detail::closure_limit + 1; }},
      {"worker 1 (rank 2) sent what is no reply", [](auto& r) { r.data[0].dataset = 7; }},
  }));
  auto const tag   = CoordinatorOptions{}.tag;
  auto endpoints   = LocalTransport{.failures = FailureScope::peer}.connect(Group::all_local(3));
  auto waits       = std::atomic<bool>{false};  // closure 0 until worker 1 is lost
  auto const where = Closure{"where", [&](Here& here, int i) {
                               if (i == 0) await(waits);
                               return here.worker;
                             }};
  auto said        = std::string{};
  auto threads     = std::vector<NamedThread>{};
  threads.emplace_back("worker 0", [&] {
    auto here = Here{0};
    ClosureWorker{endpoints[1], here, std::tuple{where}}.serve();
  });
  threads.emplace_back("worker 1", [&] {
    auto& at      = endpoints[2];
    auto request  = detail::ClosureRequest{};
    auto argument = 0;
    try {
      at.recv(0, tag, parameter_server::bytes_of(request)).wait();
      at.recv(0, tag, parameter_server::bytes_of(argument)).wait();
      auto reply = detail::ClosureReply{.number = request.number};
      sent.change(reply);
      at.send(0, tag, ConstBytes{parameter_server::bytes_of(reply)}.first(sent.bytes)).wait();
      at.send(0, tag, ConstBytes{parameter_server::bytes_of(reply)}.first(1)).wait();
    } catch (std::exception const& error) { said = error.what(); }
  });
  auto coordinator = Coordinator<At, Here>{endpoints[0], 2};
  auto const first = coordinator.schedule(where, 0), second = coordinator.schedule(where, 1);
  spin_until([&] {
    coordinator.done();  // looks
    return coordinator.lost() == 1;
  });
  waits = true;
  CHECK(coordinator.fetch(first) == 0);
  CHECK(coordinator.fetch(second) == 0);
  CHECK(coordinator.repeated() == 1);
  CHECK_THAT(coordinator.why_lost(1), Catch::Contains(sent.reason));
  coordinator.leave();
  fail(endpoints[0], "it is done");  // ends a worker that waits
  threads.clear();
}

TEST_CASE("two closures with one name, a job without workers, and no name are refused", "[strategy][coordinator]") {
  auto endpoints   = LocalTransport{}.connect(Group::all_local(2));
  auto here        = Here{0};
  auto const one   = Closure{"one", [](Here&) {}};
  auto const other = Closure{"one", [](Here&, int) {}};
  CHECK_THROWS_WITH((ClosureWorker{endpoints[1], here, std::tuple{one, other}}), Catch::Contains("the name \"one\""));
  CHECK_THROWS_WITH((ClosureWorker{endpoints[0], here, std::tuple{one}}), Catch::Contains("rank 0 of 2 coordinates"));
  CHECK_THROWS_WITH((Coordinator<At, Here>{endpoints[0], 2}), Catch::Contains("cannot coordinate 2 workers"));
  CHECK_THROWS_WITH((Coordinator<At, Here>{endpoints[1], 1}), Catch::Contains("rank 1 of 2 cannot coordinate"));
  CHECK_THROWS_AS((Closure{"", [](Here&) {}}), BadArgument);
}

TEST_CASE("each worker reads its own share, which goes on from closure to closure and pass to pass",
          "[strategy][coordinator]") {
  auto const data = numbers();
  auto const take = Closure{"take", [](Here& here, WorkerStream<IntegerRow>& rows) {
                              auto taken = Taken{here.worker, -1, -1};
                              for (auto* to : {&taken.first, &taken.second})
                                if (auto row = IntegerRow{}; rows.next(row)) *to = row.x[0];
                              return taken;
                            }};
  coordinated(2, std::tuple{take, data}, [&](auto& coordinator) {
    auto const rows = coordinator.create_per_worker_dataset(data);
    auto results    = std::vector<RemoteValue<Taken>>{};
    for (int i = 0; i < 40; ++i) results.push_back(coordinator.schedule(take, rows));
    auto next = std::array<std::int64_t, 2>{0, 0};  // element of the worker's stream
    for (auto const& taken : coordinator.fetch(results)) {
      auto& n = next[static_cast<std::size_t>(taken.worker)];
      for (auto const value : {taken.first, taken.second}) {
        auto const pass = n / 11, element = n % 11;  // the 11th is the end of a pass
        CHECK(value == (element == 10 ? -1 : 1'000 * pass + 100 * taken.worker + element));
        ++n;
      }
    }
    CHECK(next[0] + next[1] == 80);
  });
}

TEST_CASE("what a lost worker ran runs elsewhere, and its share of the data goes on there from the last result",
          "[strategy][coordinator]") {
  auto const data = numbers();
  auto seen       = std::atomic<bool>{false};  // by the coordinator: worker 1 is lost
  auto runs       = std::atomic<int>{0};
  auto const take = Closure{"take", [&](Here& here, WorkerStream<IntegerRow>& rows, int) {
                              auto row = IntegerRow{};
                              if (!rows.next(row)) throw Error{"the pass has ended"};
                              ++runs;
                              auto const value = row.x[0];
                              if (here.worker == 1 && value == 103)
                                throw PeerLost{1, "this worker gives up"};  // 103 was taken, not reported
                              if (here.worker == 0 && value == 2) await(seen);
                              return Taken{here.worker, value, 0};
                            }};
  coordinated(2, std::tuple{take, data}, [&](auto& coordinator) {
    auto const rows = coordinator.create_per_worker_dataset(data);
    auto results    = std::vector<RemoteValue<Taken>>{};
    for (int i = 0; i < 20; ++i) results.push_back(coordinator.schedule(take, rows, i));
    spin_until([&] {
      coordinator.done();  // looks
      return coordinator.lost() == 1;
    });
    seen = true;
    coordinator.join();
    CHECK(coordinator.lost() == 1);
    CHECK(coordinator.repeated() == 1);
    auto values = std::vector<std::int64_t>{};
    for (auto const& taken : coordinator.fetch(results)) {
      values.push_back(taken.first);
      CHECK((taken.worker == 0 || taken.first < 103));
    }
    std::ranges::sort(values);
    auto expected = std::vector<std::int64_t>{};
    for (int share : {0, 1})
      for (int i = 0; i < 10; ++i) expected.push_back(100 * share + i);
    CHECK(values == expected);  // each element once, in all results
    CHECK(runs == 21);
  });
}

TEST_CASE("when all workers are lost, whoever waits gets a PeerLost that says what waits", "[strategy][coordinator]") {
  auto const dies = Closure{"dies", [](Here& here) { throw PeerLost{here.worker, "no more of this"}; }};
  auto says       = std::string{};
  CHECK_THROWS_AS(coordinated(3, std::tuple{dies},
                              [&](auto& coordinator) {
                                auto const one = coordinator.schedule(dies);
                                try {
                                  coordinator.join();
                                } catch (PeerLost const& error) {
                                  says = error.what();
                                  CHECK(coordinator.repeated() == 3);
                                  CHECK_THROWS_AS(coordinator.fetch(one), PeerLost);
                                  throw;
                                }
                              }),
                  PeerLost);
  CHECK_THAT(says, Catch::Contains("all 3 workers are lost, and closure \"dies\" waits, with 0 after it") &&
                       Catch::Contains("no more of this"));
}

TEST_CASE("a lost server is told at once, though workers go on", "[strategy][coordinator]") {
  auto endpoints  = LocalTransport{.failures = FailureScope::peer}.connect(Group::all_local(3));
  auto const nap  = Closure{"nap", [](Here&) {}};
  auto const pair = [&] {
    auto here = Here{0};
    try {
      ClosureWorker{endpoints[1], here, std::tuple{nap}}.serve();
    } catch (PeerLost const&) {  // of the coordinator, which gives up
    }
  };
  auto const worker = NamedThread{"worker", pair};
  auto coordinator  = Coordinator<At, Here>{endpoints[0], 1};
  coordinator.fetch(coordinator.schedule(nap));
  fail(endpoints[2], "its disk is full");
  CHECK_THROWS_WITH(coordinator.join(), Catch::Contains("server 0 of 1 (rank 2) is gone"));
}
