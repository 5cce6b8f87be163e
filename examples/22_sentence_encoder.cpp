// SPDX-License-Identifier: Apache-2.0
//
// Sentences as vectors, which are near each other where the sentences mean something alike: BERT with a mean over its
// words. With the published weights of all-MiniLM-L6-v2 it compares any English sentences; without, a small one learns
// from pairs of sentences made in code whether both are about one topic. Two inputs share all layers; a row is as long as
// its text.
//
//   tools/run 22_sentence_encoder
//   tools/run 22_sentence_encoder --weights FOLDER --data FILE    of all-MiniLM-L6-v2; a sentence in each line
//
// Expect the cosine of the angle between each two sentences: near 1 where both are about one topic, else far below.
#include <chorale/chorale.hpp>
#include <chorale/data/text/word_piece.hpp>

#include "support/sentence_encoder.hpp"
#include "support/text.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

using namespace chorale;

constexpr int vector_size = 32, longest = 128;  // numbers of a small vector; ids of a text

struct First : Field<int, ragged> {};  // (B, longest of the batch) ids
struct Second : Field<int, ragged> {};
struct SameTopic : Field<float, 1> {};  // (B, 1) 0 or 1
struct Vector : Field<float, vector_size> {};
struct LongVector : Field<float, 384> {};

struct MiniLm : example::SentenceEncoder<First, LongVector, 6, 384, 12, 1'536, 30'522, 512> {};

struct Pairs : nn::Graph<First, Second> {
  example::SentenceLayers<2, vector_size, 4, 64, 64, longest> layers;
  nn::Dense<1> same{"same"};  // of the cosine

  constexpr auto operator()(auto first, auto second) const {
    auto const a = layers(first), b = layers(second);  // (B, 32), of length 1
    auto const cosine = nn::dot(nn::reshape<1, vector_size>(a), nn::reshape<1, vector_size>(b));  // (B, 1, 1)
    return nn::outputs<SameTopic, Vector>(same(nn::reshape<1>(cosine)), a);
  }
};

/// Prints a table of cosines; returns the mean of those within groups of `group` texts less that of all others.
float compare(std::vector<std::string> const& texts, auto const& predicted, std::size_t numbers, std::size_t group) {
  auto same = metric::Mean{}, other = metric::Mean{};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const a = predicted[i].last(numbers);  // of length 1
    for (std::size_t k = 0; k < texts.size(); ++k) {
      auto const cosine = std::inner_product(a.begin(), a.end(), predicted[k].last(numbers).begin(), 0.0F);
      std::printf("%6.2f", static_cast<double>(cosine));
      if (k != i) (k / group == i / group ? same : other).update({cosine, 1});
    }
    std::printf("   %s\n", texts[i].c_str());
  }
  return static_cast<float>(same.result() - other.result());
}

auto ids_of(std::vector<std::string> const& texts, data::WordPieceTokenizer const& tokens) {
  auto ids = std::vector<std::vector<int>>{};
  for (auto const& text : texts) ids.push_back(tokens.encode(text, longest));
  return ids;
}

int with_weights(example::SentenceOptions const& o) {
  auto const folder = std::filesystem::path{o.weights};
  auto const list   = folder / "vocab.txt";
  auto const tokens = data::WordPieceTokenizer::read(std::filesystem::exists(list) ? list : folder / "tokenizer.json");
  auto const texts  = example::lines_of(o.data.empty() ? "A man is eating food.\nA man is eating a piece of bread.\n"
                                                          "The girl is carrying a baby.\nA monkey plays drums."
                                                       : data::read_text(o.data));
  auto trainer      = Trainer{nn::compile<MiniLm>(loss::Given{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  trainer.load(folder / "model.safetensors", example::names_of_bert());
  compare(texts, trainer.predict(data::from_fields<First>(ids_of(texts, tokens)).batch(32)), 384, 1);
  return 0;
}

int trained(int epochs) {
  auto const tokens            = data::WordPieceTokenizer::of(example::topic_tokens());
  constexpr std::uint64_t rows = 2'000;
  auto first = std::vector<std::vector<int>>{}, second = first;
  auto same = std::vector<float>{};
  for (std::uint64_t i = 0; i < rows; ++i) {
    auto const draw  = Random{Seed{6}, i};
    auto const topic = draw.below(0, 3), another = draw.below(1, 2) == 0 ? topic : (topic + 1 + draw.below(2, 2)) % 3;
    first.push_back(tokens.encode(example::topic_sentence(topic, 2 * i)));
    second.push_back(tokens.encode(example::topic_sentence(another, 2 * i + 1)));
    same.push_back(topic == another ? 1.0F : 0.0F);
  }
  auto const model = nn::compile<Pairs>(nn::of<SameTopic>(loss::BinaryCrossEntropy{}), optim::Adam{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(Cpu{}.threads())}, RingAllReduce{}, LocalTransport{}, 1};
  auto const pairs = data::from_fields<First, Second, SameTopic>(first, second, same);
  trainer.fit(pairs.shuffle(rows).batch(32), {.epochs = epochs});
  auto texts = std::vector<std::string>{};
  for (std::uint64_t i = 0; i < 9; ++i) texts.push_back(example::topic_sentence(i / 3, 2 * rows + i));
  auto const ids = ids_of(texts, tokens);
  auto const apart =
      compare(texts, trainer.predict(data::from_fields<First, Second>(ids, ids).batch(9)), vector_size, 3);
  return apart > 0.5F ? 0 : 1;
}

int main(int argc, char** argv) try {
  auto const o = example::parse_sentence_options(argc, argv);
  return o.weights.empty() ? trained(o.epochs) : with_weights(o);
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
