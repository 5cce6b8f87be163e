// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/name_pattern.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// How weights of another program are turned: dimension k of ours is dimension order[k] of theirs, as in
/// numpy.transpose. Empty: as they are.
struct Axes {
  std::vector<int> order{};
};

namespace weights {

/// Kernels of torch.nn.Linear, (out, in), where nn::Dense has (in, out).
inline Axes transposed() { return {{1, 0}}; }
/// Kernels of torch.nn.Conv2d, (out, in, rows, columns), where nn::Conv2D has (rows, columns, in, out).
inline Axes oihw() { return {{2, 3, 1, 0}}; }

}  // namespace weights

/// One pattern, or several: {"q.weight", "k.weight", "v.weight"}.
struct NamePatterns {
  std::vector<NamePattern> all;

  NamePatterns() = default;
  NamePatterns(char const* text) : all{NamePattern{text}} {}
  NamePatterns(std::string text) : all{NamePattern{std::move(text)}} {}
  NamePatterns(NamePattern pattern) : all{std::move(pattern)} {}
  NamePatterns(std::initializer_list<char const*> texts) {
    for (auto const* text : texts) all.emplace_back(text);
  }
};

/// A rule of a WeightMap: what tensors of a file are called here, and how they are turned.
///
///   {"h.{i}.mlp.c_fc.bias", "dense{_4i+2}/bias"}
///   {"layers.{i}.weight", "dense{_i}/kernel", weights::transposed()}
///   {{"q.weight", "k.weight", "v.weight"}, "dense/kernel", weights::transposed()}
///
/// keeps    several tensors of a rule lie side by side, along the last dimension, after they were turned. Several
///          variables divide one tensor in the same way
struct WeightRule {
  NamePatterns theirs, ours;
  Axes axes;

  /// throws    BadArgument when axes are not a permutation
  WeightRule(NamePatterns in_file, NamePatterns here, Axes turned = {})
      : theirs{std::move(in_file)}, ours{std::move(here)}, axes{std::move(turned)} {
    auto sorted = axes.order;
    std::ranges::sort(sorted);
    for (std::size_t k = 0; k < sorted.size(); ++k)
      CHORALE_EXPECTS(sorted[k] == static_cast<int>(k), "the axes of \"" + text() + "\" have each number from 0 to " +
                                                            std::to_string(sorted.size() - 1) + " once");
  }

  std::string text() const {
    auto const& patterns = theirs.all.empty() ? ours.all : theirs.all;
    return patterns.empty() ? std::string{} : patterns[0].text();
  }
};

/// Names and layouts of weights in files of another program. The first rule that a name fits holds. Rules that
/// contradict each other are refused: two that name a tensor in the same words, two that lead to one variable, and one
/// that leads to a variable that kept() names, unless by a '*' in a later rule.
///
///   auto const names = WeightMap{{"wte.weight", "embedding/embeddings"},
///                                {"h.{i}.attn.c_attn.weight", "dense{_4i}/kernel"},
///                                {"h.{i}.mlp.c_fc.weight", "dense{_4i+2}/kernel", weights::transposed()},
///                                weights::ignored("h.{i}.attn.bias")};
///   trainer.load("gpt2.safetensors", names);
///
/// keeps    an empty map: the names and layouts of the network
struct WeightMap {
  WeightMap() = default;
  WeightMap(std::initializer_list<WeightRule> of) : rules{of} {}

  std::vector<WeightRule> rules;
};

namespace weights {

/// A rule for tensors of a file that the network does not need, such as masks.
inline WeightRule ignored(NamePatterns theirs) { return {std::move(theirs), {}}; }
/// A rule for variables that the other program does not have, such as a new head's. They keep their values where a file
/// lacks them, and are saved under their own names. As the last rule, kept("*") is for all that other rules leave.
inline WeightRule kept(NamePatterns ours) { return {{}, std::move(ours)}; }

}  // namespace weights
}  // namespace chorale
