// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace chorale;
using data::auto_tune;
using data::Order;

namespace {

/// Noise that depends on row and epoch, and takes longer for some rows.
struct Noisy {
  void operator()(Sample<float, int> const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) const {
    auto const random = at.random(Seed{5});
    auto sum          = 0.0F;
    for (std::uint64_t i = 0; i < 20 * random.below(0, 20); ++i) sum += random.uniform(i);
    x.assign(1, row.x[0] + sum);
    y.assign(1, row.y[0]);
  }
};

/// A map that computes for some hundred microseconds while `slow`, and else not at all.
struct Work {
  std::shared_ptr<std::atomic<bool>> slow = std::make_shared<std::atomic<bool>>(true);

  void operator()(Sample<float, int> const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) const {
    auto sum = 0.0F;
    for (std::uint64_t i = 0; *slow && i < 1'000; ++i) sum += at.random(Seed{1}).uniform(i);
    x.assign(1, row.x[0] + 0 * sum);
    y.assign(1, row.y[0]);
  }
};

/// What a slow function gets before a fast reader: a second thread, where there is a second core.
std::size_t several() { return std::min(2U, std::max(1U, std::thread::hardware_concurrency())); }

struct Pass {
  std::vector<float> x;
  std::vector<int> y;
  friend bool operator==(Pass const&, Pass const&) = default;
};

template <class D> Pass pass(D const& rows, std::size_t epoch) {
  auto stream = rows.stream(epoch);
  auto all    = Pass{};
  for (typename D::element some; stream.next(some);) {
    all.x.insert(all.x.end(), some.x.begin(), some.x.end());
    all.y.insert(all.y.end(), some.y.begin(), some.y.end());
  }
  return all;
}

/// Reads until the stream says `enough`, for at most n elements.
template <class Stream, class Element, class Enough>
bool read_until(Stream& stream, Element& element, int n, Enough enough) {
  for (int i = 0; i < n && !enough(); ++i)
    if (!stream.next(element)) return false;
  return enough();
}

}  // namespace

TEST_CASE("a reader that waits gets one thread more at a time, up to the most", "[data][tune]") {
  auto tuner   = data::ThreadTuner{1, 4};
  auto reads   = 0;
  auto history = std::vector<std::size_t>{tuner.threads()};
  for (; reads < 100; ++reads)
    if (tuner.found(true)) history.push_back(tuner.threads());
  CHECK(history == std::vector<std::size_t>{1, 2, 3, 4});
  CHECK(data::ThreadTuner{9, 4}.threads() == 4);
  auto single = data::ThreadTuner{1, 1};
  for (reads = 0; reads < 100; ++reads) CHECK_FALSE(single.found(true));
}

TEST_CASE("a reader that never waits gives threads back, down to one", "[data][tune]") {
  auto tuner   = data::ThreadTuner{4, 4};
  auto history = std::vector<std::size_t>{};
  for (int reads = 0; reads < 1'000; ++reads)
    if (tuner.found(false)) history.push_back(tuner.threads());
  CHECK(history == std::vector<std::size_t>{3, 2, 1});
}

TEST_CASE("a reader that waits now and then keeps the threads that it has", "[data][tune]") {
  auto tuner = data::ThreadTuner{3, 8};
  for (int reads = 0; reads < 10'000; ++reads) CHECK_FALSE(tuner.found(reads % 4 == 0));
}

TEST_CASE("a number of threads that is right is left ever less often", "[data][tune]") {
  auto tuner   = data::ThreadTuner{1, 8};
  auto changes = std::vector<int>{};
  for (int reads = 0; reads < 100'000; ++reads)  // three threads are enough, two are not
    if (tuner.found(tuner.threads() < 3)) changes.push_back(reads);
  REQUIRE(changes.size() > 6);
  CHECK(changes.size() < 40);
  auto gaps = std::vector<int>{};  // from each return to three to the next try
  for (std::size_t i = 3; i + 1 < changes.size(); i += 2) gaps.push_back(changes[i + 1] - changes[i]);
  CHECK(std::is_sorted(gaps.begin(), gaps.end()));
  CHECK(gaps.back() > 16 * gaps.front());
  CHECK(tuner.threads() >= 2);
}

TEST_CASE("prefetch runs twice as far ahead when its room was full and is empty now", "[data][tune]") {
  auto tuner = data::DepthTuner{2, 12};
  for (int i = 0; i < 100; ++i) CHECK_FALSE(tuner.found(0));  // a slow source: more room is no help
  for (int i = 0; i < 100; ++i) CHECK_FALSE(tuner.found(2));  // a fast one: needs none
  for (std::size_t const depth : {4U, 8U, 12U}) {             // bursts
    CHECK(tuner.found(0));
    CHECK(tuner.depth() == depth);
    CHECK_FALSE(tuner.found(0));  // once for each time that it was full
    CHECK_FALSE(tuner.found(depth - 1));
    CHECK_FALSE(tuner.found(0));
    CHECK_FALSE(tuner.found(depth));
  }
  CHECK_FALSE(tuner.found(0));
}

TEST_CASE("rows and their order do not depend on what is chosen", "[data][tune]") {
  auto const rows = sources::Counting{400};
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    auto const expected = pass(rows.map(Noisy{}), epoch);
    auto const tuned    = rows.map(Noisy{}, {.threads = auto_tune});
    CHECK(pass(tuned, epoch) == expected);
    CHECK(pass(tuned, epoch) == expected);  // begins with what the last pass chose
    CHECK(pass(rows.map(Noisy{}, {.threads = auto_tune, .ahead = 1}), epoch) == expected);
    CHECK(pass(rows.cache().map(Noisy{}, {.threads = auto_tune}), epoch) == expected);
    CHECK(pass(tuned.batch(7), epoch) == expected);
    CHECK(pass(tuned.batch(7).prefetch(auto_tune), epoch) == expected);
    CHECK(pass(tuned.prefetch(auto_tune), epoch) == expected);
    CHECK(pass(rows.map(Noisy{}).batch(3).prefetch(auto_tune), epoch) == expected);
    CHECK(pass(rows.map(Noisy{}).batch(3).prefetch({.elements = auto_tune, .bytes = 100}), epoch) == expected);
    auto const any = pass(rows.map(Noisy{}, {.threads = auto_tune, .order = Order::any}), epoch);
    auto sorted    = std::vector<float>(any.x.size());
    for (std::size_t i = 0; i < any.x.size(); ++i) sorted.at(static_cast<std::size_t>(any.y[i])) = any.x[i];
    CHECK(sorted == expected.x);
  }
}

TEST_CASE("a slow function before a fast reader gets more threads, and a fast one gives them back", "[data][tune]") {
  auto const work   = Work{};
  auto const source = sources::Counting{200'000};
  auto const mapped = source.map(work, {.threads = auto_tune, .ahead = 4});
  CHECK(mapped.threads() == 1);
  auto stream = mapped.stream(0);
  auto row    = Sample<float, int>{};
  CHECK(stream.threads() == 1);
  CHECK(read_until(stream, row, 5'000, [&] { return stream.threads() == several(); }));
  CHECK(mapped.threads() == several());
  *work.slow = false;
  auto more  = [&] {  // the reader comes when a row is there
    spin_until([&] { return source.reads() >= static_cast<std::size_t>(row.y[0]) + 2; });
    return stream.threads() == 1;
  };
  CHECK(read_until(stream, row, 100'000, more));
  CHECK(mapped.threads() == 1);
}

TEST_CASE("behind batch, a map chooses as well, and the next pass begins with that", "[data][tune]") {
  auto const mapped  = sources::Counting{50'000}.map(Work{}, {.threads = auto_tune});
  auto const batches = mapped.batch(4);
  auto batch         = Batch{};
  {
    auto stream = batches.stream(0);
    CHECK(stream.threads() == 1);
    CHECK(read_until(stream, batch, 1'000, [&] { return stream.threads() == several(); }));
  }
  CHECK(mapped.threads() == several());  // a copy of the stage tells
  CHECK(batches.threads() == several());
  CHECK(batches.stream(1).threads() == several());
  CHECK(sources::Counting{5}.map(Work{}, {.threads = 3}).threads() == 3);
  CHECK(sources::Counting{5}.map(Work{}, {}).threads() == std::max(1U, std::thread::hardware_concurrency()));
}

TEST_CASE("a source that comes in bursts gets more room in prefetch, up to what bytes allow", "[data][tune]") {
  auto const work   = Work{};
  auto const bursts = [work](auto const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
    if (row.y[0] % 8 == 0) return work(row, x, y, at);  // seven of eight rows come at once
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  };
  auto const elements = [&](std::size_t bytes) {
    auto const source = sources::Counting{8'000};
    auto const ahead  = source.map(bursts).prefetch({.elements = auto_tune, .bytes = bytes});
    CHECK(ahead.elements() == 2);
    auto stream     = ahead.stream(0);
    auto row        = Sample<float, int>{};
    auto const more = [&] {  // the reader pauses in the middle of a burst
      if (row.y.empty() || row.y[0] % 8 != 4 || bytes < 100) return stream.elements() > 2;
      spin_until([&] { return source.reads() >= static_cast<std::size_t>(row.y[0]) + 3; });
      for (int i = 0; i < 1'000; ++i) relax();
      return stream.elements() > 2;
    };
    CHECK(read_until(stream, row, 8'000, more) == (bytes >= 100));
    CHECK(ahead.elements() == stream.elements());
    return ahead.elements();
  };
  CHECK(elements(1'000'000) == 4);
  CHECK(elements(8) == 2);  // one row is as much as may be there
}

TEST_CASE("memory goes round in the room that was chosen, not in all that there could be", "[data][tune]") {
  auto stream = sources::Counting{2'000}.batch(10).prefetch(auto_tune).stream(0);
  auto batch  = Batch{};
  auto places = std::set<float const*>{};
  auto rows   = 0;
  auto depth  = std::size_t{0};
  while (stream.next(batch)) {
    for (auto const y : batch.y) CHECK(y == rows++);
    places.insert(batch.x.data());
    depth = stream.elements();
  }
  CHECK(rows == 2'000);
  CHECK(places.size() <= depth + 1);
}

TEST_CASE("errors come after the rows before them, and streams may be left at any point", "[data][tune]") {
  auto const picky = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    if (row.y[0] >= 30) throw std::runtime_error{"no row 30"};
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  };
  auto stream = sources::Counting{100}.map(picky, {.threads = auto_tune}).prefetch(auto_tune).stream(0);
  auto row    = Sample<float, int>{};
  for (int i = 0; i < 30; ++i) {
    REQUIRE(stream.next(row));
    CHECK(row.y[0] == i);
  }
  CHECK_THROWS_WITH(stream.next(row), "no row 30");
  CHECK_THROWS_WITH(stream.next(row), "no row 30");
  auto const mapped = sources::Counting{10'000}.map(Noisy{}, {.threads = auto_tune});
  for (int read = 0; read < 40; ++read) {
    auto left  = mapped.stream(0);
    auto batch = mapped.batch(3).prefetch(auto_tune).stream(0);
    auto some  = Batch{};
    for (int i = 0; i < read; ++i) REQUIRE((left.next(row) && batch.next(some)));
  }
}
