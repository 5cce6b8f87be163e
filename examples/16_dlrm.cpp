// SPDX-License-Identifier: Apache-2.0
//
// A model that recommends, DLRM: features with numbers go through one network, features with ids through tables; what
// each two of them have in common, and the numbers, go through another network, which says whether somebody clicks.
// Most ids are rare, so a batch touches a small part of the tables: only those rows travel between replicas.
//
//   tools/run 16_dlrm
//
// Expect four lines of progress whose losses fall, then a line such as
//   a step moves 0.05 MB, and would move 7.77 MB with dense tables
#include <chorale/chorale.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace chorale;

constexpr int ids_of_a_bag = 4;

struct Numbers : Field<float, 13> {};        // (B, 13)
struct Users : Field<int, ids_of_a_bag> {};  // (B, 4) ids, in each of three fields
struct Items : Field<int, ids_of_a_bag> {};
struct Words : Field<int, ids_of_a_bag> {};
struct Clicked : Field<float, 1> {};  // (B, 1) 0 or 1

template <int... Widths> using Network = nn::Block<nn::Block<nn::Dense<Widths>, nn::ReLU>...>;

struct Dlrm : nn::Graph<Numbers, Users, Items, Words> {
  nn::EmbeddingBag<100'000, 16, nn::Bag::sum> users;
  nn::EmbeddingBag<20'000, 16, nn::Bag::sum> items;
  nn::EmbeddingBag<1'000, 16, nn::Bag::sum> words;
  Network<64, 32, 16> bottom;
  Network<64, 32> top;
  nn::Dense<1> click;

  constexpr auto operator()(auto numbers, auto user, auto item, auto word) const {
    auto const x     = bottom(numbers);                                            // (B, 16)
    auto const pairs = nn::interaction(x, users(user), items(item), words(word));  // (B, 6)
    return nn::outputs<Clicked>(click(top(nn::concatenate(x, pairs))));
  }
};

/// Row n: its words and the first of its numbers say how likely a click is.
auto const write_row = [](auto const& n, auto& row) {
  auto const random = Random{Seed{2}, static_cast<std::uint64_t>(n.x[0])};
  auto drawn        = std::uint64_t{0};
  auto const fill   = [&](std::vector<int>& ids, int table) {  // by a power law: half are the first 6 %
    ids.resize(ids_of_a_bag);
    for (auto& id : ids) {
      auto const u = random.uniform(drawn++);
      id           = static_cast<int>(u * u * u * u * static_cast<float>(table));
    }
  };
  fill(row[Users{}], 100'000), fill(row[Items{}], 20'000), fill(row[Words{}], 1'000);
  row[Numbers{}].resize(Numbers::size);
  for (auto& x : row[Numbers{}]) x = random.normal(drawn++);
  auto liked = row[Numbers{}][0] + 0.5F * random.normal(drawn++);
  for (auto const word : row[Words{}]) liked += word % 2 == 0 ? 1.0F : -1.0F;
  row[Clicked{}].assign(1, liked > 0 ? 1.0F : 0.0F);
};

int main() try {
  auto numbers = std::vector<float>(20'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  auto const rows = data::from_tensors(numbers, numbers, 1)
                        .map<Numbers, Users, Items, Words, Clicked>(write_row)
                        .cache()
                        .shuffle(20'000)
                        .batch(128);

  auto const model   = nn::compile<Dlrm>(loss::BinaryCrossEntropy{}, optim::SGD{.learning_rate = 0.5F});
  auto trainer       = Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 1};
  auto const history = trainer.fit(rows, {.epochs = 4});

  auto const traffic = trainer.live().local_replica(0).traffic();
  auto const steps   = static_cast<double>(trainer.step());
  auto const dense   = static_cast<double>(PlanView{model.plan}.values() * sizeof(float));
  std::printf("a step moves %.2f MB, and would move %.2f MB with dense tables\n",
              static_cast<double>(traffic.bytes) / steps / 1e6, dense / 1e6);
  auto const equal = trainer.hashes()[0] == trainer.hashes()[1];
  return equal && history.back().scores.loss() < 0.8 * history.front().scores.loss() ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
