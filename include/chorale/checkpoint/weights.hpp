// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/turned_tensor.hpp>
#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/checkpoint/weights_file.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Which tensor of a file goes into which variable. Nothing is copied before all was compared.
class WeightsToLoad {
 public:
  /// tensors                     by name, ascending
  /// tensors, variables, names   outlive this object
  WeightsToLoad(std::vector<NamedTensor> const& tensors, Variables const& variables, WeightMap const& names)
      : variables_{variables}, from_(variables.size()) {
    for (std::size_t i = 0; i < variables.size(); ++i) index_[std::string{variables[i].name}] = i;
    if (names.rules.empty()) read_as_they_are(tensors);
    else read_by(names, tensors);
    for (auto const& link : links_) compare(link);
    for (std::size_t i = 0; i < from_.size(); ++i)
      if (from_[i] == nullptr && !is_kept(names, std::string{variables[i].name}))
        differences_.add("the file has nothing for " + std::string{variables[i].name});
  }

  /// What does not fit, in a sentence without its end; empty if all fits.
  std::string differences() const { return differences_.text(); }

  /// Writes the variables. Only without differences.
  void copy() const {
    auto all = std::vector<float>{};
    for (auto const& link : links_) {
      auto const& first = variables_[link.to[0]];
      auto const rows   = Columns{{first.shape.begin(), first.shape.end()}}.rows;
      auto columns      = std::size_t{0};
      for (auto const i : link.to) columns += variables_[i].value.size() / rows;
      auto const one = link.to.size() == 1;
      if (!one) all.resize(rows * columns);
      auto* const to = one ? variables_[link.to[0]].value.data() : all.data();
      auto before    = std::size_t{0};
      for (auto const* tensor : link.from) {
        auto const width = Columns{turned(tensor->shape, link.rule_axes())}.columns;
        read_floats(*tensor, [&](auto const& read) {
          auto r = std::size_t{0}, c = std::size_t{0};
          each_turned(tensor->shape, link.rule_axes(), [&](std::size_t place) {
            to[r * columns + before + c] = read(place);
            if (++c == width) c = 0, ++r;
          });
        });
        before += width;
      }
      if (!one) divide(link, all, rows, columns);
    }
  }

 private:
  /// Tensors that lie side by side, and the variables that take them.
  struct Link {
    std::vector<NamedTensor const*> from;
    std::vector<std::size_t> to;
    WeightRule const* rule = nullptr;  // none: as they are

    Axes const& rule_axes() const {
      static auto const none = Axes{};
      return rule == nullptr ? none : rule->axes;
    }
  };

  void read_as_they_are(std::vector<NamedTensor> const& tensors) {
    for (auto const& tensor : tensors) {
      auto const at = index_.find(tensor.name);
      if (at == index_.end()) differences_.add([&] { return "the network has no " + in_quotes(tensor.name); });
      else links_.push_back({{&tensor}, {at->second}}), take(tensor, at->second);
    }
  }

  void read_by(WeightMap const& names, std::vector<NamedTensor> const& tensors) {
    if (auto const twice = pattern_of_two(names); !twice.empty())
      differences_.add("two rules of the map are for " + in_quotes(twice));
    auto parts = std::map<std::pair<WeightRule const*, std::string>, std::size_t>{};  // of links_
    for (auto const& tensor : tensors) {
      auto const* rule = static_cast<WeightRule const*>(nullptr);
      auto values      = NamePattern::Values{};
      auto part        = std::size_t{0};
      for (auto const& candidate : names.rules) {
        for (part = 0; part < candidate.theirs.all.size() && rule == nullptr; ++part)
          if (auto found = candidate.theirs.all[part].read(tensor.name)) rule = &candidate, values = *found;
        if (rule != nullptr) break;
      }
      if (rule == nullptr) {
        read_kept(names, tensor);
        continue;
      }
      if (rule->ours.all.empty()) continue;  // ignored
      --part;
      auto const [at, is_new] = parts.emplace(std::pair{rule, to_string(values)}, links_.size());
      if (is_new) links_.push_back(link_of(names, *rule, values, tensor));
      auto& link = links_[at->second];
      if (link.from[part] != nullptr)
        differences_.add(in_quotes(tensor.name) + " and " + in_quotes(link.from[part]->name) + " are one by the rule " +
                         in_quotes(rule->text()));
      link.from[part] = &tensor;
    }
  }
  void read_kept(WeightMap const& names, NamedTensor const& tensor) {
    auto const at = index_.find(tensor.name);
    if (at == index_.end() || !is_kept(names, tensor.name))
      return differences_.add([&] { return "no rule of the map has a name for " + in_quotes(tensor.name); });
    links_.push_back({{&tensor}, {at->second}});
    take(tensor, at->second);
  }
  Link link_of(WeightMap const& names, WeightRule const& rule, NamePattern::Values const& values,
               NamedTensor const& tensor) {
    auto link = Link{std::vector<NamedTensor const*>(rule.theirs.all.size()), {}, &rule};
    for (auto const& pattern : rule.ours.all) {
      CHORALE_EXPECTS(pattern.writes(values), "the name \"" + pattern.text() + "\" cannot be written from what \"" +
                                                  rule.text() + "\" finds: it has a letter or a * more");
      auto const name = pattern.write(values);
      if (auto const at = index_.find(name); at == index_.end()) {
        differences_.add("the network has no " + name + ", where " + in_quotes(rule.text()) + " leads");
      } else {
        if (auto const keeper = kept_against(names, rule, name); !keeper.empty())
          differences_.add(in_quotes(tensor.name) + " goes into " + name + ", which weights::kept(" +
                           in_quotes(keeper) + ") keeps");
        take(tensor, at->second);
        link.to.push_back(at->second);
      }
    }
    return link;
  }
  /// Notes the tensor of a variable, which is one.
  void take(NamedTensor const& tensor, std::size_t variable) {
    if (auto const* other = std::exchange(from_[variable], &tensor); other != nullptr)
      differences_.add("two tensors go into " + std::string{variables_[variable].name} + ": " + in_quotes(other->name) +
                       " and " + in_quotes(tensor.name));
  }
  static bool is_kept(WeightMap const& names, std::string const& name) {
    return std::ranges::any_of(names.rules, [&](WeightRule const& rule) {
      return rule.theirs.all.empty() &&
             std::ranges::any_of(rule.ours.all, [&](NamePattern const& p) { return p.read(name).has_value(); });
    });
  }

  /// Compares kinds and shapes. Variables that the network does not have were reported before.
  void compare(Link const& link) {
    if (link.rule != nullptr && link.to.size() != link.rule->ours.all.size()) return;
    auto have = std::string{}, wanted = std::string{};
    auto fits    = true;
    auto columns = std::int64_t{0};
    auto leading = Shape64{};
    for (auto const i : link.to) {
      auto const shape = Shape64(variables_[i].shape.begin(), variables_[i].shape.end());
      wanted += (wanted.empty() ? "" : " and ") + std::string{variables_[i].name} + " is F32 " + shape_text(shape);
      columns += static_cast<std::int64_t>(Columns{shape}.columns);
      if (i == link.to[0]) leading = without_last(shape);
      fits = fits && without_last(shape) == leading;
    }
    for (std::size_t part = 0; part < link.from.size(); ++part) {
      auto const* tensor = link.from[part];
      have += have.empty() ? "" : " and ";
      if (tensor == nullptr) {
        have += "nothing for " + in_quotes(link.rule->theirs.all[part].text());
        fits = false;
        continue;
      }
      auto const& axes = link.rule_axes();
      have += in_quotes(tensor->name) + " is " + std::string{name_of(tensor->dtype)} + " " + shape_text(tensor->shape);
      if (!axes.order.empty() && axes.order.size() != tensor->shape.size()) {
        have += ", to be turned with " + std::to_string(axes.order.size()) + " axes";
        fits = false;
        continue;
      }
      auto const shape = turned(tensor->shape, axes);
      if (!axes.order.empty()) have += ", turned " + shape_text(shape);
      columns -= static_cast<std::int64_t>(Columns{shape}.columns);
      fits = fits && is_float(tensor->dtype) && without_last(shape) == leading &&
             shape.size() == static_cast<std::size_t>(variables_[link.to[0]].shape.size());
    }
    if (!fits || columns != 0) differences_.add(have + ", but " + wanted);
  }
  static Shape64 without_last(Shape64 shape) {
    if (!shape.empty()) shape.pop_back();
    return shape;
  }

  void divide(Link const& link, std::vector<float> const& all, std::size_t rows, std::size_t columns) const {
    auto before = std::size_t{0};
    for (auto const i : link.to) {
      auto const value = variables_[i].value;
      auto const width = value.size() / rows;
      for (std::size_t r = 0; r < rows; ++r)
        std::copy_n(all.data() + r * columns + before, width, value.data() + r * width);
      before += width;
    }
  }

  Variables variables_;
  std::map<std::string, std::size_t> index_;  // of variables, by name
  std::vector<NamedTensor const*> from_;      // of each variable: a tensor of it, or none
  std::vector<Link> links_;
  Differences differences_;
};

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

namespace chorale {

/// Writes variables as float32 under their names, one logical tensor each, whatever the layout in memory was. With a map:
/// under the names and in the layouts of another program.
///
/// throws  BadFile when the file cannot be written; BadArgument when the map has no name for a variable. An old file is
///         then untouched
inline void save_weights(std::filesystem::path const& file, Variables const& variables, WeightMap const& names = {}) {
  auto const mapped = detail::TensorsToSave{variables, names};
  write_safetensors(file, mapped.tensors(), {{"format", names.rules.empty() ? "chorale" : "pt"}});
}

/// Reads variables by their names, or by the names that a map gives them. Numbers of 16 and 64 bits become float.
///
/// path    of a safetensors file, or of the index of several, model.safetensors.index.json
/// throws  BadFile when the file is damaged, or does not fit the network: it names the first three differences, such as a
///         variable that is missing, a tensor that the network does not have, or another shape. No variable has changed
///         then
inline void load_weights(std::filesystem::path const& path, Variables const& variables, WeightMap const& names = {}) {
  auto const file = WeightsFile{path};
  auto const plan = detail::WeightsToLoad{file.tensors(), variables, names};
  if (auto const text = plan.differences(); !text.empty())
    throw BadFile{path.string() + ": " + text + ".",
                  names.rules.empty() ? "the file that was saved from this network, or a WeightMap with the names and "
                                        "layouts of the program that wrote it."
                                      : "rules of the WeightMap for them; weights::ignored for tensors that are not "
                                        "needed, weights::kept for variables that the file does not have."};
  plan.copy();
}

}  // namespace chorale
