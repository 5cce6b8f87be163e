// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 6> {};
struct Vector : Field<float, 6> {};
struct Kind : Field<int, 1> {};

// expect: compiles
struct Net : nn::Graph<Words> {};
Net net;

// expect: chorale: nn::Graph<...> takes fields. Write struct Title : Field<int, 40> {}
struct Net : nn::Graph<nn::Input<6>> {};
Net net;

// expect: chorale: nn::Graph<...> needs at least one field
struct Net : nn::Graph<> {};
Net net;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};
Net net;

// expect: chorale: a Sequential needs at least one layer after nn::Input
struct Net : nn::Sequential<nn::Input<8>> {};
Net net;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Residual<nn::Dense<4>, nn::Shortcut<nn::Dense<4>>>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: chorale: a Residual needs at least one layer before its Shortcut
struct Net : nn::Sequential<nn::Input<8>, nn::Residual<nn::Shortcut<nn::Dense<4>>>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: compiles
struct Net : nn::Graph<Words> {
  nn::Embedding<9, 4> words;
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(words.logits(words(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: logits(x) of an Embedding takes vectors (B, .., width) as wide as its own
struct Net : nn::Graph<Words> {
  nn::Embedding<9, 4> words;
  nn::Dense<5> wider;
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(words.logits(wider(words(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Halved : nn::Layer<Halved> {
  static constexpr std::string_view name = "halved";
  static constexpr auto output(nn::Of<float, 6> x) { return x; }
  static void forward(auto& at) { at.y()[0] = at.x()[0] / 2; }
  static void backward(auto& at) { at.dx()[0] += at.dy()[0] / 2; }
};
struct Net : nn::Graph<Vector> {
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(Halved{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer does not take these inputs. Its function output(...) says which it takes
struct Halved : nn::Layer<Halved> {
  static constexpr std::string_view name = "halved";
  static constexpr auto output(nn::Of<float, 7> x) { return x; }
  static void forward(auto& at) { at.y()[0] = at.x()[0] / 2; }
  static void backward(auto& at) { at.dx()[0] += at.dy()[0] / 2; }
};
struct Net : nn::Graph<Vector> {
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(Halved{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
constexpr auto spec = nn::zeros("kernel", 1, 2, 3, 4);

// expect: chorale: a variable has at most 4 dimensions
constexpr auto spec = nn::zeros("kernel", 1, 2, 3, 4, 5);
