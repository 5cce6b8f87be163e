// SPDX-License-Identifier: Apache-2.0
//
// Multiplications of steps, against numbers counted by hand.
#include "test/support/graph_nets.hpp"
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/gru.hpp>
#include <chorale/nn/layers/multi_head_attention.hpp>

#include <catch2/catch.hpp>

using namespace chorale;

namespace work_test {

template <class Net> constexpr NetworkWork work_of = nn::graph::work_of(nn::graph::Traced<Net, Cpu>::calls);

using test::graph_nets::Next;
using test::graph_nets::Tokens;
struct X : Field<float, 6, 8> {};
struct Y : Field<float, 1> {};
struct Ids : Field<int, 7> {};
struct Words : Field<int, ragged> {};

struct Reads : nn::Graph<X> {  // its input is no variable's doing
  nn::LSTM<5> reader;
  nn::Dense<1> value;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(value(reader(x))); }
};
struct ReadsWords : nn::Graph<Ids> {
  nn::Embedding<50, 8> words;
  nn::GRU<5> reader;
  nn::Dense<1> value;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(value(reader(words(x)))); }
};
struct ReadsRagged : nn::Graph<Words> {
  nn::Embedding<50, 8> words;
  nn::Dense<3> each;
  nn::LSTM<5> reader;
  nn::Dense<1> value;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(value(reader(each(words(x))))); }
};
template <class... Options> struct Attends : nn::Graph<X> {
  nn::Dense<8> before;
  nn::MultiHeadAttention<2, 3, Options...> attention;
  nn::Dense<1> value;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Y>(value(nn::GlobalAveragePool1D{}(attention(before(x)))));
  }
};
struct Bags : nn::Graph<Ids, X> {
  nn::EmbeddingBag<50, 8> bag;
  nn::Dense<8> dense;
  constexpr auto operator()(auto ids, auto x) const {
    return nn::outputs<Y>(nn::dot(bag(ids), dense(nn::reshape<48>(x))));
  }
};
struct AsksForX : nn::Graph<nn::Differentiable<X>> {
  nn::Dense<1> value;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(value(nn::reshape<48>(x))); }
};
struct LeavesOut : nn::Graph<X> {  // a branch that no output reads
  nn::Dense<4> left_out;
  nn::Dense<1> value;
  constexpr auto operator()(auto x) const {
    auto const flat = nn::reshape<48>(x);
    left_out(flat);
    return nn::outputs<Y>(value(flat));
  }
};

constexpr std::size_t conv = 26 * 26 * 32 * 9, hidden = 5408 * 64, logits = 64 * 10;

}  // namespace work_test

using namespace work_test;

TEST_CASE("multiplications of a CNN: its first layer has no gradient by the picture", "[nn][work]") {
  constexpr auto lenet = work_of<nn::detail::SequentialTrace<tiny::LeNet>>;
  STATIC_REQUIRE(lenet.of_row.forward == conv + hidden + logits);
  STATIC_REQUIRE(lenet.of_row.backward == conv + 2 * (hidden + logits));
  STATIC_REQUIRE(lenet.of_row.activations == 3 * 5'408 + 2 * 64 + 10);  // the pool is computed with the convolution
  STATIC_REQUIRE(lenet.of_row.lookups == 0);
  STATIC_REQUIRE(lenet.of_position == RowWork{});
}

TEST_CASE("multiplications of a GPT: pairs of a step and those before it, and a tied head of all words", "[nn][work]") {
  using Net            = test::graph_nets::Gpt2<Tokens, Next, 2, 8, 2, 30, 5>;
  constexpr auto gpt   = work_of<Net>;
  constexpr auto dense = 5 * (8 * 24 + 8 * 8 + 8 * 32 + 32 * 8);  // of a block, 5 steps
  constexpr auto pairs = 5 * 6 / 2 * 8;                           // q k, and as many p v
  constexpr auto head  = 5 * 8 * 30;
  STATIC_REQUIRE(gpt.of_row.forward == 2 * (dense + 2 * pairs) + head);
  STATIC_REQUIRE(gpt.of_row.backward == 2 * gpt.of_row.forward);
  STATIC_REQUIRE(gpt.of_row.lookups == 0);  // the table is dense: it is moved as a whole
}

TEST_CASE("multiplications of layers over sequences, of their states and of what comes in", "[nn][work]") {
  constexpr auto x = 6 * 8 * 20, states = 6 * 5 * 20;
  STATIC_REQUIRE(work_of<Reads>.of_row.forward == x + states + 5);
  STATIC_REQUIRE(work_of<Reads>.of_row.backward == x + 2 * states + 2 * 5);
  constexpr auto of_gru = 7 * (8 + 5) * 15;
  STATIC_REQUIRE(work_of<ReadsWords>.of_row.forward == of_gru + 5);
  STATIC_REQUIRE(work_of<ReadsWords>.of_row.backward == 2 * of_gru + 2 * 5);
  STATIC_REQUIRE(work_of<ReadsWords>.of_row.lookups == 7 * 8);
  constexpr auto of_rows = work_of<ReadsRagged>;
  STATIC_REQUIRE(of_rows.of_row.forward == 5);
  STATIC_REQUIRE(of_rows.of_row.backward == 2 * 5);
  STATIC_REQUIRE(of_rows.of_position.forward == 8 * 3 + (3 + 5) * 20);
  STATIC_REQUIRE(of_rows.of_position.backward == 2 * of_rows.of_position.forward);
  STATIC_REQUIRE(of_rows.of_position.activations == 8 + 3);
  STATIC_REQUIRE(of_rows.of_position.lookups == 8);
  CHECK(of_rows.products(10, 25) == 10 * 15.0 + 25 * 3 * 184.0);
  CHECK(of_rows.bytes(0, 25) == 25 * 4 * 19.0);
}

TEST_CASE("multiplications of attention between any steps, or to those before", "[nn][work]") {
  constexpr auto before = 6 * 8 * 8, in_out = 6 * 8 * 6 * 4, value = 8;
  STATIC_REQUIRE(work_of<Attends<>>.of_row.forward == before + in_out + 2 * 36 * 6 + value);
  STATIC_REQUIRE(work_of<Attends<nn::Causal>>.of_row.forward == before + in_out + 2 * 21 * 6 + value);
  STATIC_REQUIRE(work_of<Attends<>>.of_row.backward == 2 * work_of<Attends<>>.of_row.forward - before);
}

TEST_CASE("products of two values, an input whose gradient is asked for, and a branch that nobody reads",
          "[nn][work]") {
  STATIC_REQUIRE(work_of<Bags>.of_row.forward == 48 * 8 + 8);
  STATIC_REQUIRE(work_of<Bags>.of_row.backward == 48 * 8 + 2 * 8);
  STATIC_REQUIRE(work_of<Bags>.of_row.lookups == 7 * 8);
  STATIC_REQUIRE(work_of<AsksForX>.of_row.backward == 2 * 48);
  STATIC_REQUIRE(work_of<LeavesOut>.of_row.forward == 5 * 48);
  STATIC_REQUIRE(work_of<LeavesOut>.of_row.backward == 48);
}
