// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MaxPool2D<2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a pool takes images (B, H, W, C) but the layer before gives rows of numbers
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MaxPool2D<2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::PReLU<nn::PerChannel> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: an nn::BatchNorm is in an nn::Recompute, which would move its statistics twice. Use nn::LayerNorm or nn::GroupNorm there, or leave nn::Recompute out
struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::Recompute<nn::Block<nn::Dense<8>, nn::BatchNorm<>>> hidden;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(hidden(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::Recompute<nn::Block<nn::Dense<8>, nn::LayerNorm>> hidden;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(hidden(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Reshape<24>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: reshape<dims...> gives as many elements as it takes; the product of the dimensions differs
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Reshape<23>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the branches of a Residual give different shapes; give it an nn::Shortcut<...>
struct Net : nn::Sequential<nn::Input<8>, nn::Residual<nn::Dense<16>, nn::ReLU>, nn::Dense<3>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: compiles
struct Net
    : nn::Sequential<nn::Input<8>, nn::Residual<nn::Dense<16>, nn::ReLU, nn::Shortcut<nn::Dense<16>>>, nn::Dense<3>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: chorale: slice<begin, end, axis> takes a part of one dimension: 0 <= begin < end <= size
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Slice<2, 5>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Slice<2, 4>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: LeakyReLU<Percent> needs a slope of at least 0
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::LeakyReLU<-1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::LeakyReLU<0>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
auto const made = nn::Stride<1>{};

// expect: chorale: Stride<S> needs at least 1
auto const made = nn::Stride<0>{};

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv2DTranspose takes images (B, H, W, C) but what comes in has another shape; put nn::reshape<H, W, C>(...) before it
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv2DTranspose needs a kernel at least as large as its stride
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Conv2DTranspose<2, 2, nn::Stride<3>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv2DTranspose takes filters, a kernel size, then Valid or Same, Stride<n>, NoBias, and an initializer
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 3, nn::Dilation<2>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 3, nn::Same>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Conv2DTranspose<2, 3, nn::Stride<3>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
