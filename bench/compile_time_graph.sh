#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What it costs to compile the executor of a GPT-2, of 12 blocks and of 96, and of ResNet-50, with g++ and clang++: user
# seconds, largest memory, longest symbol, size of the object. The first line of each compiler is the headers alone.
#
#   bench/compile_time_graph.sh [flags]         by default -O2 -march=x86-64-v3
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
flags=("$@")
[ ${#flags[@]} -gt 0 ] || flags=(-O2 -march=x86-64-v3)

cat > "$folder/headers.hpp" << 'END'
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/tensor/cpu/all.hpp>
END
cat > "$folder/resnet.cpp" << 'END'
#include "headers.hpp"
#include <chorale/nn/engine/sequential_executor.hpp>
#include <chorale/nn/networks/resnet.hpp>
using namespace chorale;
using E = nn::Executor<Cpu, nn::resnet::ResNet50<>>;
void run(E& e, Pass const& p, std::size_t& n) { e.forward(p), e.backward(p, [&](std::size_t end) { n += end; }); }
E* make(int rows, Span<float> v, Span<float> g) { return new E{rows, v, g, Cpu{}}; }
END
cat > "$folder/net.cpp" << 'END'
#include "headers.hpp"
using namespace chorale;

template <int Width, int Heads>
struct Attention {
  nn::Dense<3 * Width> qkv;
  nn::Dense<Width> out;
  constexpr auto operator()(auto x) const { return out(nn::CausalHeads<Heads>{}(qkv(x))); }
};
struct Block {
  nn::LayerNorm before_attention, before_mlp;
  Attention<768, 12> attention;
  nn::Dense<3072> widen;
  nn::Dense<768> narrow;
  constexpr auto operator()(auto x) const {
    auto const y = x + attention(before_attention(x));
    return y + narrow(nn::gelu(widen(before_mlp(y))));
  }
};
struct Tokens : Field<int, 128> {};
struct Next : Field<int, 128> {};
struct Gpt2 : nn::Graph<Tokens> {
  nn::Embedding<50257, 768> words{"wte"};
  nn::Positions<1024, 768> places{"wpe"};
  std::array<Block, BLOCKS> blocks;
  nn::LayerNorm last{"ln_f"};
  constexpr auto operator()(auto tokens) const {
    auto x = places(words(tokens));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(words.logits(last(x)));
  }
};
using E = nn::GraphExecutor<Gpt2, Cpu>;
void run(E& e, Pass const& p, std::size_t& n) { e.forward(p), e.backward(p, [&](std::size_t end) { n += end; }); }
E* make(int rows, Span<float> v, Span<float> g) { return new E{rows, v, g}; }
END

printf '%-24s %8s %8s %8s %8s\n' '' 'user s' 'MB' 'symbol' 'KB'
for compiler in g++ clang++; do
  command -v "$compiler" > /dev/null || continue
  for blocks in 0 12 96 resnet; do
    source=net.cpp what="$blocks blocks"
    [ "$blocks" != 0 ] || source=headers.hpp what=headers
    [ "$blocks" != resnet ] || source=resnet.cpp what=ResNet-50
    /usr/bin/time -f '%U %M' -o "$folder/time" "$compiler" -std=c++20 "${flags[@]}" -w -Iinclude -DBLOCKS="$blocks" \
      -c -x c++ "$folder/$source" -o "$folder/net.o"
    read -r seconds kilobytes < "$folder/time"
    symbol=$(nm -C "$folder/net.o" | cut -c20- | awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }')
    printf '%-24s %8s %8s %8s %8s\n' "$compiler, $what" "$seconds" $((kilobytes / 1024)) "$symbol" \
      $(($(stat -c %s "$folder/net.o") / 1024))
  done
done
