// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
auto const epsilon = nn::Epsilon<1>{};

// expect: chorale: Epsilon<Added> needs a number above 0 and below 1
auto const epsilon = nn::Epsilon<0>{};

// expect: compiles
auto const epsilon = nn::EpsilonPower<37>{};

// expect: chorale: EpsilonPower<Power> is 10 to the power -Power, from 1 to 37
auto const epsilon = nn::EpsilonPower<38>{};

// expect: compiles
auto const parts = nn::Parts<1>{};

// expect: chorale: Parts<N> needs at least 1
auto const parts = nn::Parts<0>{};

// expect: compiles
auto const blocks = nn::Blocks<1>{};

// expect: chorale: Blocks<N> needs at least 1
auto const blocks = nn::Blocks<0>{};

// expect: compiles
auto const balanced = nn::Balanced<1>{};

// expect: chorale: Balanced<Percent> of nn::Experts needs at least 1 percent
auto const balanced = nn::Balanced<0>{};

// expect: compiles
auto const repeated = nn::Repeat<0, nn::ReLU>{};

// expect: chorale: Repeat<N, ...> needs at least 0
auto const repeated = nn::Repeat<-1, nn::ReLU>{};

// expect: compiles
auto const rows = nn::TableRows<100, 1>{};

// expect: chorale: TableRows names at least one table, and each has at least 1 row
auto const rows = nn::TableRows<100, 0>{};

// expect: compiles
auto const precision = nn::Precision<bf16>{};

// expect: chorale: Precision<T> takes float, bf16 or fp16
auto const precision = nn::Precision<double>{};

// expect: compiles
struct Image : Field<float, 4> {};
auto const image = nn::Differentiable<Image, nn::OnRequest>{};

// expect: chorale: the option of nn::Differentiable is nn::InEachStep or nn::OnRequest
struct Image : Field<float, 4> {};
auto const image = nn::Differentiable<Image, nn::Same>{};

// expect: compiles
auto const recall   = metric::RecallOf<0>{};
constexpr auto name = recall.name;

// expect: chorale: a metric of a class takes its label, which is 0 or more
auto const recall   = metric::RecallOf<-1>{};
constexpr auto name = recall.name;
