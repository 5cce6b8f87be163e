// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/nn/engine/sequential_trace.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::nn {

namespace detail {

/// A table of three columns, the last of numbers, each as wide as its widest cell.
class SummaryTable {
 public:
  using Line = std::array<std::string, 3>;

  void add(Line const& line) {
    lines_.push_back(line);
    for (std::size_t i = 0; i < line.size(); ++i) widths_[i] = std::max(widths_[i], line[i].size());
  }
  std::string text() const {
    auto all = std::string{};
    for (auto const& [layer, shape, number] : lines_) {
      all += layer + std::string(widths_[0] - layer.size() + 2, ' ');
      all += shape + std::string(widths_[1] - shape.size() + 2, ' ');
      all += std::string(widths_[2] - number.size(), ' ') + number + '\n';
    }
    return all;
  }

 private:
  std::vector<Line> lines_;
  std::array<std::size_t, 3> widths_{};
};

}  // namespace detail

/// A table of a model's layers, in the order in which they compute, with the shape of what each gives and the numbers
/// in its variables; then their sums, and the bytes that a replica takes to train with `rows` rows.
///
///   std::cout << nn::summary(model, 64);
///
///   layer                                           output             parameters
///   input                                           (B, 28, 28, 1)
///   Conv2D<32,3,Pad<0>,Stride<1>,GlorotUniform>     (B, 26, 26, 32)           320
///   ..
///
/// rows     of a replica's share of a batch; 0: bytes are left out
/// keeps    a pool comes before the activation that it is moved before; a layer that is called again has no parameters
///          in its second line; a variable that is not trained is counted, as in Keras
/// source   keras.Model.summary
template <class Model> std::string summary(Model const& model, std::size_t rows = 0, Cpu const& device = Cpu{}) {
  using Net         = typename detail::TracedNetwork<typename Model::network>::type;
  auto const& calls = graph::Traced<Net, graph::NoDevice>::calls;
  auto table        = detail::SummaryTable{};
  auto trained = std::size_t{0}, others = std::size_t{0};
  auto told = std::vector<bool>(calls.layers.size());
  table.add({"layer", "output", "parameters"});
  for (auto const i : calls.inputs) table.add({"input", calls.values[graph::at(i)].shape(), ""});
  for (auto const& call : calls.calls) {
    auto const& layer = calls.layers[graph::at(call.layer)];
    auto numbers      = std::size_t{0};
    for (int v = layer.first; v < layer.first + layer.variables && !told[graph::at(call.layer)]; ++v) {
      auto const& spec = calls.variables[graph::at(v)].spec;
      numbers += spec.size();
      (spec.trained() ? trained : others) += spec.size();
    }
    told[graph::at(call.layer)] = true;
    auto shapes                 = std::string{};
    for (int out = call.first_out; out < call.first_out + call.outs; ++out)
      shapes.append(shapes.empty() ? "" : " ") += calls.values[graph::at(out)].shape();
    auto const name = layer.name.empty() ? call.text() : call.text() + " " + std::string{layer.name};
    table.add({name, shapes, with_commas(numbers)});
  }
  auto text = table.text() + with_commas(trained + others) + " parameters: " + with_commas(trained) + " trained, " +
              with_commas(others) + " not\n";
  if (rows != 0) text += text_of(memory_of(model, rows, device), 1);
  return text;
}

}  // namespace chorale::nn
