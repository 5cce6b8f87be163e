// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/predict.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// The algorithms that AutoAllReduce chooses from.
enum class Algorithm : std::uint8_t { automatic, recursive_doubling, halving_doubling, double_tree, ring, direct };

constexpr std::string_view name(Algorithm a) {
  return std::array<std::string_view, 6>{"automatic", "recursive doubling", "halving, doubling", "double tree", "ring",
                                         "direct"}[static_cast<std::size_t>(a)];
}

/// Measured or predicted times of each algorithm in one group, for some sizes; the same on all its ranks.
struct AutoTable {
  static constexpr std::size_t algorithms = 6;
  static constexpr std::array<std::uint64_t, 4> sizes{1'024, 16'384, 262'144, 4'194'304};  // bytes

  std::array<std::array<double, algorithms>, sizes.size()> seconds{};  // [size][algorithm]; 0 where there is none

  /// The fastest algorithm for the table size that is nearest to `bytes` in ratio.
  Algorithm choice(std::size_t bytes) const {
    auto row = std::size_t{0};
    while (row + 1 < sizes.size() && bytes > 4 * sizes[row]) ++row;
    auto best = Algorithm::ring;
    for (std::size_t a = 1; a < algorithms; ++a)
      if (seconds[row][a] > 0 && seconds[row][a] < seconds[row][static_cast<std::size_t>(best)])
        best = static_cast<Algorithm>(a);
    return best;
  }

  /// Writes one line for each size: the microseconds of each algorithm, and the choice.
  friend std::ostream& operator<<(std::ostream& out, AutoTable const& table) {
    for (std::size_t row = 0; row < sizes.size(); ++row) {
      out << sentence("{} bytes:", sizes[row]);
      for (std::size_t a = 1; a < algorithms; ++a)
        if (table.seconds[row][a] > 0)
          out << "  " << name(static_cast<Algorithm>(a)) << formatted(" %g us", table.seconds[row][a] * 1e6);
      out << "  -> " << name(table.choice(sizes[row])) << '\n';
    }
    return out;
  }
};

namespace detail {

/// An endpoint whose ranks read each other's memory only within memory(), a part of it.
template <class E> concept ExposesArena = DirectAccessEndpoint<E> && requires(E& at) { at.memory(); };

template <ExposesArena E, class T> bool is_in_arena(E& at, Span<T> x) {
  auto const arena = at.memory();
  auto const first = reinterpret_cast<std::byte const*>(x.data());
  return std::less_equal<>{}(arena.data(), first) &&
         std::less_equal<>{}(first + x.size_bytes(), arena.data() + arena.size());
}

}  // namespace detail

/// An all-reduce under way by the algorithm that was chosen for its size. See AutoAllReduce.
template <Endpoint E, Reducible T> class AutoOperation {
 public:
  AutoOperation() = default;

  /// table    may be null when an algorithm is forced
  AutoOperation(std::shared_ptr<AutoTable const> table, Algorithm forced) : table_{std::move(table)}, forced_{forced} {}

  void restart(E& at, Span<T> x, Op op, Tag tag, CallSite where = {}) {
    CHORALE_EXPECTS(table_ != nullptr || forced_ != Algorithm::automatic,
                    "an AutoOperation that knows no group cannot choose; take it from AutoAllReduce::start()");
    chosen_ = forced_ != Algorithm::automatic ? forced_ : choice(at, x);
    with_chosen([&](auto& operation) { operation.restart(at, x, op, tag, where); });
  }

  bool poll() {
    auto complete = true;
    if (chosen_ != Algorithm::automatic) with_chosen([&](auto& operation) { complete = operation.poll(); });
    return complete;
  }

  void finish() {
    if (chosen_ != Algorithm::automatic) with_chosen([](auto& operation) { operation.finish(); });
  }

 private:
  Algorithm choice(E& at, Span<T> x) const {
    if constexpr (detail::ExposesArena<E>)
      if (detail::is_in_arena(at, x)) return Algorithm::direct;
    return table_->choice(x.size_bytes());
  }

  template <class F> void with_chosen(F&& f) {
    switch (chosen_) {
      case Algorithm::recursive_doubling: return f(recursive_doubling_);
      case Algorithm::halving_doubling: return f(halving_doubling_);
      case Algorithm::double_tree: return f(double_tree_);
      case Algorithm::direct:
        if constexpr (DirectAccessEndpoint<E>) return f(direct_);
        CHORALE_EXPECTS(DirectAccessEndpoint<E>, "the direct algorithm needs ranks that read each other's memory");
        return;
      default: return f(ring_);
    }
  }

  static auto direct_operation() {
    if constexpr (DirectAccessEndpoint<E>) return DirectOperation<E, T>{};
    else return nullptr;
  }

  std::shared_ptr<AutoTable const> table_;
  Algorithm forced_ = Algorithm::automatic;
  Algorithm chosen_ = Algorithm::automatic;  // automatic: complete
  ScheduleExecution<RecursiveDoublingAllReduce, E, T> recursive_doubling_;
  ScheduleExecution<HalvingDoublingAllReduce, E, T> halving_doubling_;
  ScheduleExecution<DoubleTreeAllReduce, E, T> double_tree_;
  ScheduleExecution<RingAllReduce, E, T> ring_;
  decltype(direct_operation()) direct_;
};

/// All-reduce by the algorithm that is fastest in this group for the size of x, measured at the first use.
///
/// forced  the algorithm to use instead; then nothing is measured
/// model   the network, the same on all ranks: predicted_time() chooses, as in advise(), and nothing is measured
/// keeps   a value and its copies serve one group, where nothing else is under way at the first use. Rank 0's times
///         decide for all. Over SharedMemoryTransport an x that is in the arena on all ranks is reduced in place, by
///         DirectAllReduce; the other algorithms are measured for an x outside the arena
/// cost    the chosen algorithm's; cost() is the ring's. The first use runs five all-reduces of each algorithm and
///         each size in AutoTable, up to 4 MiB
/// order   the chosen algorithm's: bits may differ between runs, since times do. Force an algorithm where that matters
struct AutoAllReduce {
  /// The tables of all ranks that use copies of one value, as ranks that are threads of one process may.
  struct Tables {
    struct Known {
      Rank rank;
      int ranks;
      std::shared_ptr<AutoTable const> table;
    };
    std::mutex mutex;
    std::vector<Known> known;
  };

  Algorithm forced = Algorithm::automatic;
  std::optional<NetworkModel> model{};
  std::shared_ptr<Tables> tables = std::make_shared<Tables>();  // shared by copies

  static constexpr Cost cost(int ranks, std::size_t bytes) { return RingAllReduce::cost(ranks, bytes); }

  template <Endpoint E, Reducible T>
  AutoOperation<E, T> start(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto operation = idle<T>(at);
    operation.restart(at, x, op, tag, where);
    return operation;
  }

  template <Endpoint E, Reducible T>
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    start(at, x, op, tag, where).finish();
  }

  template <Reducible T = float, Endpoint E> AutoOperation<E, T> idle(E& at) const {
    return {forced == Algorithm::automatic ? table(at) : nullptr, forced};
  }

  /// Returns the table of this group; a rank's first call measures or predicts it. All ranks call it together.
  template <Endpoint E> std::shared_ptr<AutoTable const> table(E& at) const {
    {
      auto const lock = std::lock_guard{tables->mutex};
      for (auto const& known : tables->known)
        if (known.rank == at.rank() && known.ranks == at.size()) return known.table;
    }
    auto const made = std::make_shared<AutoTable const>(model ? predicted(*model, at.size()) : measured(at));
    auto const lock = std::lock_guard{tables->mutex};
    tables->known.push_back({at.rank(), at.size(), made});
    return made;
  }

 private:
  static AutoTable predicted(NetworkModel const& model, int ranks) {
    model.check();
    auto table = AutoTable{};
    for (std::size_t row = 0; row < AutoTable::sizes.size(); ++row)
      for (auto const& [algorithm, advised] :
           {std::pair{Algorithm::recursive_doubling, ReduceKind::recursive_doubling},
            std::pair{Algorithm::halving_doubling, ReduceKind::halving_doubling},
            std::pair{Algorithm::double_tree, ReduceKind::double_tree}, std::pair{Algorithm::ring, ReduceKind::ring}})
        table.seconds[row][static_cast<std::size_t>(algorithm)] =
            seconds(predicted_time(advised, ranks, AutoTable::sizes[row], model));
    return table;
  }

  template <Endpoint E> static AutoTable measured(E& at) {
    auto table = AutoTable{};
    auto x     = std::vector<float>(AutoTable::sizes.back() / sizeof(float));
    for (std::size_t row = 0; row < AutoTable::sizes.size(); ++row)
      for (std::size_t a = 1; a < AutoTable::algorithms; ++a)
        if (static_cast<Algorithm>(a) != Algorithm::direct || (DirectAccessEndpoint<E> && !detail::ExposesArena<E>))
          table.seconds[row][a] =
              seconds_of(at, Span<float>{x}.first(AutoTable::sizes[row] / sizeof(float)), static_cast<Algorithm>(a));
    broadcast(at, Span<AutoTable>{&table, 1});
    return table;
  }

  /// The shortest time of four all-reduces, after a first one that allocates.
  template <Endpoint E> static double seconds_of(E& at, Span<float> x, Algorithm algorithm) {
    auto const now = [&] {
      if constexpr (requires { at.now(); }) return at.now();  // a simulated rank's clock
      else return std::chrono::steady_clock::now();
    };
    auto operation = AutoOperation<E, float>{nullptr, algorithm};
    auto shortest  = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 5; ++round) {
      barrier(at);
      auto const begin = now();
      operation.restart(at, x, Op::sum, Tag{});
      operation.finish();
      if (round > 0) shortest = std::min(shortest, std::chrono::duration<double>(now() - begin).count());
    }
    return shortest;
  }
};

}  // namespace chorale
