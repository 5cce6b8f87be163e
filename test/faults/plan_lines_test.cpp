// SPDX-License-Identifier: Apache-2.0
// Ranks that were started with another strategy, reduce, schedule of a pipeline, or cut of a network refuse each other
// as they connect, and every rank names both.
#include "told.hpp"

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/model_replicas.hpp>

#include <functional>
#include <iostream>
#include <vector>

namespace plan_lines_test {

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

struct Numbers : Field<float, 6> {};
struct Target : Field<float, 3> {};

/// Three layers with variables, of which a stage ends after the first `cut`.
template <int cut> struct Net : nn::Graph<Numbers> {
  nn::Dense<8> a{"a"}, b{"b"};
  nn::Dense<3> c{"c"};

  constexpr auto operator()(auto x) const {
    auto const first  = nn::Tanh{}(a(x));
    auto const second = [&] {
      if constexpr (cut == 1) return nn::Tanh{}(b(nn::stage_ends_after(first)));
      else return nn::stage_ends_after(nn::Tanh{}(b(first)));
    }();
    return nn::outputs<Target>(c(second));
  }
};

template <int cut = 1, PipelineSchedule S, class R = RingAllReduce>
std::vector<std::string> lines_of(S, R reduce = {}) {
  auto const strategy = MeshStrategy{Mesh<Axis<"stage", 2>>{Cluster::local(2), Cpu::logical(1)}, pipelined<S>()};
  return plan_lines(nn::compile<Net<cut>>(loss::MeanSquaredError{}, optim::SGD{}), 7, strategy, reduce);
}

struct Difference {
  char const* name;
  std::vector<std::string> lines;  // of the one rank
  std::vector<std::string> says;   // of both sides
};

std::vector<Difference> differences() {
  auto const copies = MultiWorkerMirroredStrategy<Cpu>{Cluster::local(2), Cpu::logical(1)};
  return {
      {"schedule", lines_of(ZeroBubbleH1<4>{}), {"pipeline schedule", "OneForwardOneBackward<4>", "ZeroBubbleH1<4>"}},
      {"micro-batches", lines_of(OneForwardOneBackward<8>{}), {"pipeline schedule OneForwardOneBackward", "4", "8"}},
      {"cut", lines_of<2>(OneForwardOneBackward<4>{}), {"pipeline sections end at calls "}},
      {"reduce", lines_of(OneForwardOneBackward<4>{}, TreeAllReduce{}), {"reduce ", "RingAllReduce", "TreeAllReduce"}},
      {"strategy",
       plan_lines(nn::compile<Net<1>>(loss::MeanSquaredError{}, optim::SGD{}), 7, copies, RingAllReduce{}),
       {"strategy ", "MeshStrategy", "MultiWorkerMirroredStrategy"}},
  };
}

struct End {
  std::string text = "it connected";
  int fault        = -1;
  double at        = 0;  // seconds since all had begun
};

template <class T>
std::vector<End> ends_of(int ranks, Rank odd, std::vector<std::string> const& usual,
                         std::vector<std::string> const& other) {
  auto const transport = between_processes<T>(ranks, {.join = 30s});
  auto ends            = std::vector<End>(static_cast<std::size_t>(ranks));
  auto const since     = seconds_now();
  auto threads         = std::vector<NamedThread>{};
  for (Rank rank = 0; rank < ranks; ++rank)
    threads.emplace_back("rank", [&, rank] {
      auto mine = transport;
      auto& end = ends[static_cast<std::size_t>(rank)];
      chorale::detail::add_plan(mine, rank == odd ? other : usual);
      try {
        mine.connect(Group{ranks, {rank}});
      } catch (Disagreement const& error) {
        end = {error.what(), static_cast<int>(error.fault())};
      } catch (std::exception const& error) { end.text = error.what(); }
      end.at = seconds_now() - since;
    });
  threads.clear();
  return ends;
}

}  // namespace

TEMPLATE_TEST_CASE("ranks with another strategy, reduce, schedule or cut are told both as they connect",
                   "[faults][plan]", TcpTransport, SharedMemoryTransport) {
  auto const usual = lines_of(OneForwardOneBackward<4>{});
  auto cells       = 0;
  auto longest     = 0.0;
  for (auto const& d : differences())
    for (int const ranks : {2, 3})
      for (Rank const odd : {0, ranks - 1}) {
        for (auto const& end : ends_of<TestType>(ranks, odd, usual, d.lines)) {
          INFO(d.name << " of rank " << odd << " of " << ranks << ": " << end.text);
          CHECK(end.fault == static_cast<int>(Fault::model_mismatch));
          for (auto const& word : d.says) CHECK_THAT(end.text, Catch::Contains(word));
          longest = std::max(longest, end.at);
        }
        ++cells;
      }
  CHECK(cells == 5 * 2 * 2);
  CHECK(longest < 15);  // of Timeouts::join, 30 s
  std::cout << "  " << cells << " ways to differ, told within " << longest << " s\n";
}

TEST_CASE("ranks with the same lines connect", "[faults][plan]") {
  auto const usual = lines_of(OneForwardOneBackward<4>{});
  for (auto const& end : ends_of<SharedMemoryTransport>(2, 0, usual, usual)) CHECK(end.text == "it connected");
}

}  // namespace plan_lines_test
