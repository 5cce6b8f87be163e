// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<2, 6>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the kernel of this Conv1D is longer than the sequence; use a shorter one, or the option Same
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<2, 7>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv1D with Groups<n> needs channels and filters that are multiples of n
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<6, 3, nn::Groups<3>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<6, 3, nn::Groups<2>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<2, 3, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv1D takes filters, a kernel size, then Valid, Same, Pad<n> or Causal, Stride<n>, Dilation<n>, Groups<n>, NoBias, and an initializer
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<2, 3, nn::Reverse>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv2D with Groups<n> needs channels and filters that are multiples of n
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Conv2D<8, 3, nn::Groups<4>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Conv2D<8, 3, nn::Groups<2>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<8, 3>, nn::Flatten> {};
constexpr auto parameters = Net::plan.parameters;

// expect: chorale: Conv2D takes images (B, H, W, C) but the layer before gives rows of numbers
struct Net : nn::Sequential<nn::Input<8, 8, 1>, nn::Flatten, nn::Conv2D<8, 3>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: chorale: Conv2D takes filters, a kernel size, then Valid, Same or Pad<n>, Stride<n>, NoBias, KernelWidth<n>, Dilation<n>, Groups<n>, and an initializer
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2D<2, 3, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2D<2, 3, nn::Same>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::Cropping2D<1>{}(image))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Cropping2D<top, bottom, left, right> takes images (B, H, W, C) that are larger than what it removes
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::Cropping2D<2>{}(image))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::DepthwiseConv2D<8>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the kernel of this DepthwiseConv2D is larger than the image; use a smaller one, or the option Same
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::DepthwiseConv2D<9>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: DepthwiseConv2D takes a kernel size, then Valid, Same or Pad<n>, Stride<n>, NoBias, KernelWidth<n>, Dilation<n>, DepthMultiplier<n>, and an initializer
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::DepthwiseConv2D<3, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::DepthwiseConv2D<3, nn::Same>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
auto const made = nn::Dilation<1>{};

// expect: chorale: Dilation<N> needs at least 1
auto const made = nn::Dilation<0>{};

// expect: chorale: Dropout<Rate> needs at least 0 and less than 1
struct Net : nn::Sequential<nn::Input<8>, nn::Dropout<100>, nn::Dense<2>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dropout<50>, nn::Dense<2>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: put nn::Flatten before it
struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::Flatten, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: chorale: this layer is not linear, and what comes in is a part of a sum over an axis (P): put nn::all_reduce<Axis>(x) before it
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(nn::gelu(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::gelu(nn::all_reduce<Tensor>(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: MultiHeadAttention<heads, width> takes one or two sequences of numbers (B, T, C)
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::MultiHeadAttention<2, 3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Conv1D takes sequences (B, T, C), a vector of numbers for each step; put
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Conv1D<4, 3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::DepthwiseConv2D<3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::GlobalAveragePool2D{}(image))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a pool over steps takes sequences of numbers (B, T, C), with T at least its window
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::MaxPool1D<2>{}(image))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<4, 4, 1>, nn::Conv2D<8, 5, nn::Same>, nn::Flatten, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: chorale: the kernel of this Conv2D is larger than the image
struct Net : nn::Sequential<nn::Input<4, 4, 1>, nn::Conv2D<8, 5>, nn::Flatten, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;

// expect: compiles
auto const made = nn::KernelWidth<1>{};

// expect: chorale: KernelWidth<columns> needs at least 1
auto const made = nn::KernelWidth<0>{};

// expect: chorale: GaussianNoise<Deviation> needs a standard deviation of at least 0
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GaussianNoise<-1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GaussianNoise<0>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Pad<N> needs at least 0
auto const made = nn::Pad<-1>{};

// expect: compiles
auto const made = nn::Pad<0>{};

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Permute<1, 0>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: permute<axes...> takes each dimension of a row once, counted from 0
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Permute<1, 1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::MultiHeadAttention<2, 3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MaxPool2D<8>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the window of this pool is larger than the image; use a smaller one, or the option Same
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MaxPool2D<9>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
