// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/turned_tensor.hpp>
#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/core/check.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// The tensors of a file of another program, made of variables.
class TensorsToSave {
 public:
  /// throws    BadArgument when no rule has a name for a variable
  TensorsToSave(Variables const& variables, WeightMap const& names) {
    if (names.rules.empty()) {
      for (std::size_t i = 0; i < variables.size(); ++i) add(std::string{variables[i].name}, variables[i]);
      return;
    }
    auto parts   = std::map<std::pair<WeightRule const*, std::string>, std::vector<std::vector<Variable>>>{};
    auto order   = std::vector<std::pair<WeightRule const*, NamePattern::Values>>{};
    auto missing = Differences{};
    if (auto const twice = pattern_of_two(names); !twice.empty())
      missing.add("two rules of the map are for " + in_quotes(twice));
    for (std::size_t i = 0; i < variables.size(); ++i) {
      auto const name = std::string{variables[i].name};
      auto is_done    = false;
      for (auto const& rule : names.rules) {
        for (std::size_t part = 0; part < rule.ours.all.size() && !is_done; ++part) {
          auto const values = rule.ours.all[part].read(name);
          if (!values) continue;
          is_done = true;
          if (rule.theirs.all.empty()) {  // kept
            add(name, variables[i]);
            continue;
          }
          if (auto const keeper = kept_against(names, rule, name); !keeper.empty())
            missing.add("the rule " + in_quotes(rule.text()) + " names " + name + ", which weights::kept(" +
                        in_quotes(keeper) + ") keeps");
          auto& all = parts[{&rule, to_string(*values)}];
          if (all.empty()) all.resize(rule.ours.all.size()), order.emplace_back(&rule, *values);
          all[part].push_back(variables[i]);
        }
        if (is_done) break;
      }
      if (!is_done) missing.add("no rule of the map has a name for " + name);
    }
    for (auto const& [rule, values] : order) write(*rule, values, parts[{rule, to_string(values)}], missing);
    CHORALE_EXPECTS(missing.text().empty(), "weights cannot be saved by this map: " + missing.text());
  }

  /// keeps    views of this object and of the variables
  std::vector<NamedTensor> const& tensors() const { return tensors_; }

 private:
  void add(std::string name, Variable const& v) {
    tensors_.push_back({.name  = std::move(name),
                        .dtype = Dtype::f32,
                        .shape = {v.shape.begin(), v.shape.end()},
                        .bytes = std::as_bytes(v.value)});
  }

  void write(WeightRule const& rule, NamePattern::Values const& values, std::vector<std::vector<Variable>> const& parts,
             Differences& missing) {
    auto columns = std::size_t{0};
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].size() != 1) return missing.add("the network has nothing for \"" + rule.ours.all[k].text() + "\"");
      columns += Columns{shape_of(parts[k][0])}.columns;
    }
    for (auto const& pattern : rule.theirs.all)
      if (!pattern.writes(values))
        return missing.add("the name \"" + pattern.text() +
                           "\" cannot be written: it is a regular expression, or has a *");
    auto shape      = shape_of(parts[0][0]);
    auto const rows = Columns{shape}.rows;
    auto const n    = rule.theirs.all.size();
    if (columns % n != 0 || (shape.empty() && n > 1) ||
        (!rule.axes.order.empty() && rule.axes.order.size() != shape.size()))
      return missing.add(std::string{parts[0][0].name} + ", " + shape_text(shape) +
                         ", cannot be turned and divided into " + std::to_string(n) + " as \"" + rule.text() +
                         "\" says");
    if (parts.size() == 1 && n == 1 && rule.axes.order.empty())
      return add(rule.theirs.all[0].write(values), parts[0][0]);
    auto all    = std::vector<float>(rows * columns);
    auto before = std::size_t{0};
    for (auto const& part : parts) {
      auto const width = part[0].value.size() / rows;
      for (std::size_t r = 0; r < rows; ++r)
        std::copy_n(part[0].value.data() + r * width, width, all.data() + r * columns + before);
      before += width;
    }
    if (!shape.empty()) shape.back() = columns / n;
    for (std::size_t k = 0; k < n; ++k) write_part(rule, rule.theirs.all[k].write(values), shape, all, k * columns / n);
  }
  /// Adds columns [first, first + shape.back()) of a matrix of all columns, turned back.
  void write_part(WeightRule const& rule, std::string name, Shape64 const& shape, std::vector<float> const& all,
                  std::size_t first) {
    auto const [columns, rows] = Columns{shape};
    auto const stride          = all.size() / rows;
    auto& made                 = owned_.emplace_back();
    auto const back            = inverse(rule.axes);
    made.reserve(rows * columns);
    each_turned(shape, back, [&, width = columns](std::size_t place) {
      made.push_back(all[place / width * stride + first + place % width]);
    });
    tensors_.push_back({.name  = std::move(name),
                        .dtype = Dtype::f32,
                        .shape = turned(shape, back),
                        .bytes = std::as_bytes(Span<float const>{made})});
  }
  static Shape64 shape_of(Variable const& v) { return {v.shape.begin(), v.shape.end()}; }

  std::vector<NamedTensor> tensors_;
  std::list<std::vector<float>> owned_;  // turned or put together; views stay valid
};

}  // namespace chorale::detail
