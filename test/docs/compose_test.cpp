// SPDX-License-Identifier: Apache-2.0
// docs/30-compose.md has tables and sentences that are taken from the code. This asks the compiler again, and compares.
#include <chorale/fwd.hpp>
// First, so that each of its declarations is held against a definition.
#include <chorale/chorale.hpp>
#include <chorale/observe/csv.hpp>
#include <chorale/observe/prometheus.hpp>
#include <chorale/observe/tensorboard.hpp>
#include <chorale/observe/timeline.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/faulty.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include "test/compose/feature_table.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

constexpr auto page = "docs/30-compose.md";

/// The least that a transport can be: messages, and no access to the memory of peers.
struct Messages {
  struct endpoint {
    struct pending {
      bool done() { return true; }
      void wait() {}
    };
    Rank rank() const { return 0; }
    int size() const { return 1; }
    pending send(Rank, Tag, ConstBytes) { return {}; }
    pending recv(Rank, Tag, Bytes) { return {}; }
  };
  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }
  std::vector<endpoint> connect(Group const&) const { return {}; }
};

/// A transport whose ranks read each other's memory, but not that of the host.
struct NotOfTheHost : LocalTransport {
  static constexpr bool reaches(Memory memory) { return memory != Memory::host; }
};

template <class T> struct Named {
  using type = T;
  std::string_view name;
};

constexpr auto reduces = std::tuple{Named<RingAllReduce>{"`RingAllReduce`"},
                                    Named<PairwiseAllReduce>{"`PairwiseAllReduce`"},
                                    Named<TreeAllReduce>{"`TreeAllReduce`"},
                                    Named<DoubleTreeAllReduce>{"`DoubleTreeAllReduce`"},
                                    Named<HalvingDoublingAllReduce>{"`HalvingDoublingAllReduce`"},
                                    Named<RecursiveDoublingAllReduce>{"`RecursiveDoublingAllReduce`"},
                                    Named<ReduceToOne>{"`ReduceToOne`"},
                                    Named<AutoAllReduce>{"`AutoAllReduce`"},
                                    Named<Compressed<bf16>>{"`Compressed<bf16>`"},
                                    Named<TopK<10>>{"`TopK<10>`"},
                                    Named<Reproducible<64>>{"`Reproducible<64>`"},
                                    Named<DirectAllReduce>{"`DirectAllReduce`"},
                                    Named<CopiedAllReduce>{"`CopiedAllReduce`"},
                                    Named<HierarchicalAllReduce<>>{"`HierarchicalAllReduce`"}};
constexpr auto transports =
    std::tuple{Named<LocalTransport>{"`LocalTransport`"}, Named<SharedMemoryTransport>{"`SharedMemoryTransport`"},
               Named<TcpTransport>{"`TcpTransport`"},     Named<Layered<LocalTransport, TcpTransport>>{"`Layered<..>`"},
               Named<Messages>{"one with messages only"}, Named<NotOfTheHost>{"one that does not reach host memory"}};

constexpr auto strategies =
    std::tuple{Named<OneDeviceStrategy<>>{"`OneDeviceStrategy`"},
               Named<MirroredStrategy<>>{"`MirroredStrategy`"},
               Named<CentralStorageStrategy<>>{"`CentralStorageStrategy`"},
               Named<MultiWorkerMirroredStrategy<>>{"`MultiWorkerMirroredStrategy`"},
               Named<LocalSgd<8, MirroredStrategy<>>>{"`LocalSgd<8, ..>`"},
               Named<Gossip<MirroredStrategy<>>>{"`Gossip<..>`"},
               Named<ParameterServerStrategy<Asynchronous>>{"`ParameterServerStrategy<Asynchronous>`"},
               Named<ParameterServerStrategy<Synchronous>>{"`ParameterServerStrategy<Synchronous>`"},
               Named<ParameterServerStrategy<BoundedStaleness<4>>>{"`ParameterServerStrategy<BoundedStaleness<4>>`"},
               Named<ParameterServerStrategy<BackupWorkers<1>>>{"`ParameterServerStrategy<BackupWorkers<1>>`"}};

template <class All, class F> void each(All const& all, F&& f) {
  std::apply([&](auto const&... one) { (f(one), ...); }, all);
}

/// What the front door says to this choice: yes, or the numbers of the sentences with which it refuses.
template <class S, class R, class T> std::string answer() {
  static_assert(Strategy<S> && Transport<T>);
  if constexpr (detail::fit_together<S, R, T>) {
    static_assert(sizeof(Live<S, R, T>) > 0);  // the door itself agrees
    return "yes";
  }
  auto numbers = std::string{};
  for (auto const& [number, fits] :
       {std::pair{1, ReduceAlgorithm<R, T>}, {2, Reaches<T, S>}, {3, Takes<S, R>}, {4, Spares<T, S>}})
    if (!fits) numbers += (numbers.empty() ? "" : " and ") + std::to_string(number);
  return "no, " + numbers;
}

std::string strategy_table() {
  auto table = std::string{
      "| Strategy | a reduce that adds | `Compressed`, `TopK` | `Reproducible` | over `LocalTransport` | "
      "`TcpTransport` | `SharedMemoryTransport` | `Layered<..>` |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n"};
  each(strategies, [&]<class S>(Named<S> const& strategy) {
    using Ring = RingAllReduce;
    CHECK(answer<S, Compressed<bf16>, LocalTransport>() == answer<S, TopK<10>, LocalTransport>());
    table.append("| ").append(strategy.name).append(" |");
    for (auto const& one : {answer<S, Ring, LocalTransport>(), answer<S, Compressed<bf16>, LocalTransport>(),
                            answer<S, Reproducible<64>, LocalTransport>(), answer<S, Ring, LocalTransport>(),
                            answer<S, Ring, TcpTransport>(), answer<S, Ring, SharedMemoryTransport>(),
                            answer<S, Ring, Layered<LocalTransport, TcpTransport>>()})
      table += " " + one + " |";
    table += '\n';
  });
  return table;
}

/// The rows of one strategy.
template <class S> std::string rows_of() {
  auto rows = std::string{};
  each(reduces, [&]<class R>(Named<R> const& reduce) {
    rows.append("| ").append(reduce.name).append(" |");
    each(transports, [&]<class T>(Named<T> const&) { rows += " " + answer<S, R, T>() + " |"; });
    rows += '\n';
  });
  return rows;
}

std::string compose_table() {
  auto head = std::string{"| Reduce |"}, rule = std::string{"| --- |"};
  each(transports, [&](auto const& transport) {
    head.append(" ").append(transport.name).append(" |");
    rule += " --- |";
  });
  return head + '\n' + rule + '\n' + rows_of<MirroredStrategy<>>();
}

std::string cost_table() {
  auto table = std::string{"| Reduce | P = 2 | P = 4 | P = 8 |\n| --- | --- | --- | --- |\n"};
  each(reduces, [&]<class R>(Named<R> const& reduce) {
    table.append("| ").append(reduce.name).append(" |");
    for (int const ranks : {2, 4, 8}) {
      constexpr auto kibi = std::size_t{1'024};
      auto const cost     = R::cost(ranks, kibi * kibi);
      table += " " + std::to_string(cost.steps) + " steps, " + std::to_string(cost.bytes / kibi) + " KiB |";
    }
    table += '\n';
  });
  return table;
}

/// Features by strategies, in tables of few columns, and the sentences that cells have by number.
std::string feature_tables() {
  namespace of            = test::features;
  constexpr auto together = std::size_t{10};
  auto text               = std::string{};
  auto equal = 0, refused = 0, thrown = 0;
  for (std::size_t first = 0; first < of::columns.size(); first += together) {
    auto const last = std::min(first + together, of::columns.size());
    auto head = std::string{"| |"}, rule = std::string{"| --- |"};
    for (auto i = first; i < last; ++i) {
      head.append(" ").append(of::columns[i].text).append(" |");
      rule += " --- |";
    }
    text += head + '\n' + rule + '\n';
    for (auto const& row : of::rows) {
      text.append("| ").append(row.text).append(" |");
      for (auto i = first; i < last; ++i) {
        auto const cell = of::cell_of(row.name, of::columns[i].name);
        REQUIRE_FALSE(cell.empty());
        ++(cell == "=" || cell == "~" ? equal : cell.ends_with(of::thrown) ? thrown : refused);
        text.append(" ").append(cell == "~" ? "≈" : cell).append(" |");
      }
      text += '\n';
    }
    text += '\n';
  }
  text += std::to_string(equal) + " cells are equal to one device, " + std::to_string(refused) +
          " are refused by the compiler, " + std::to_string(thrown) + " by an exception:\n\n";
  for (std::size_t i = 0; i < of::sentences.size(); ++i)
    text.append(std::to_string(i + 1)).append(". ").append(of::sentences[i]).append("\n");
  return text;
}

std::string text_of(std::string const& path) {
  auto file = std::ifstream{path};
  INFO(path << " is opened from the root of the repository");
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// What stands between the two comments with this name.
std::string block(std::string const& text, std::string const& name) {
  auto const begin = "<!-- begin " + name + ": written by test/docs/compose_test.cpp -->\n";
  auto const end   = "<!-- end " + name + " -->";
  auto const from = text.find(begin), to = text.find(end);
  INFO(page << " needs the lines\n" << begin << end);
  REQUIRE((from != std::string::npos && to != std::string::npos && from < to));
  return text.substr(from + begin.size(), to - from - begin.size());
}

/// Compares, and prints what to paste: Catch2 would wrap its lines.
void check_block(std::string const& name, std::string const& expected) {
  auto const same = block(text_of(page), name) == expected;
  if (!same) std::cout << "the block \"" << name << "\" of " << page << " should be\n\n" << expected << '\n';
  CHECK(same);
}

/// The same text with one space for each run of white space.
std::string on_one_line(std::string const& text) {
  auto line = std::string{};
  for (char const c : text) {
    bool const space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!space) line += c;
    else if (!line.empty() && line.back() != ' ') line += ' ';
  }
  return line;
}

/// The string literals of a source, adjacent ones joined, that send their reader to the page.
std::vector<std::string> sentences_of(std::string const& source) {
  auto found   = std::vector<std::string>{};
  auto literal = std::string{};
  for (std::size_t at = source.find('"'); at != std::string::npos; at = source.find('"', at)) {
    auto const end = source.find('"', at + 1);
    literal += source.substr(at + 1, end - at - 1);
    auto const next = source.find_first_not_of(" \n", end + 1);
    at              = end + 1;
    if (next != std::string::npos && source[next] == '"') continue;
    if (literal.find(std::string{"See "} + page) != std::string::npos) found.push_back(literal);
    literal.clear();
  }
  return found;
}

}  // namespace

TEST_CASE("the table of what composes is what the concepts and Live say", "[docs]") {
  check_block("compose", compose_table());
  CHECK(rows_of<OneDeviceStrategy<>>() == rows_of<MirroredStrategy<>>());
}

TEST_CASE("the table of strategies is what the concepts and Live say", "[docs]") {
  check_block("strategies", strategy_table());
}

TEST_CASE("the table of features is what is compiled and trained", "[docs]") {
  check_block("features", feature_tables());
}

TEST_CASE("the table of costs is what the algorithms say", "[docs]") { check_block("costs", cost_table()); }

TEST_CASE("every sentence that sends its reader to the page stands on it", "[docs]") {
  auto sentences = sentences_of(text_of("include/chorale/strategy/refused_live.hpp"));
  std::ranges::move(sentences_of(text_of("include/chorale/strategy/missing_members.hpp")),
                    std::back_inserter(sentences));
  auto const text = on_one_line(text_of(page));
  CHECK(sentences.size() >= 6);
  for (auto const& sentence : sentences) {
    auto const there = text.find(on_one_line(sentence)) != std::string::npos;
    if (!there) std::cout << page << " should have\n\n" << sentence << "\n\n";
    CHECK(there);
  }
}
