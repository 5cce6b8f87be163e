// SPDX-License-Identifier: Apache-2.0
//
// A range of calls of a network as a separate network.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/again.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// A network that is cut, as all stages know it: when the program runs, so that one class does for any network.
struct WholeNetwork {
  Records g;
  Span<int const> uses;  // variables of calls
  Span<VariableRecord const> variables;
  Span<int const> inputs;             // values
  Span<bool const> trains;            // for each value, see trained_values
  Products products = Products::f32;  // what matrix products round numbers to

  int section_of(std::vector<int> const& ends, int call) const {
    auto x = 0;
    while (ends[at(x)] <= call) ++x;
    return x;
  }
};

/// A value that comes into a section, or leaves it, for one of its readers.
///
/// reader    the place among the ins of all calls at which it is read; -1 - o: output o of the network
struct Crossing {
  int value = -1, reader = -1;  // of the network
  int other   = -1;             // section that it comes from, or goes to
  bool number = true;           // its gradient goes the other way
  int local   = -1;             // the value within the section; -1: none
};

/// The calls of one section, with the values numbered again: a value from another section is an input, once for each
/// place where it is read, and one that another section reads is an output, once for each place. So each part of its
/// gradient goes back by itself, and all are added up in the order in which one device adds them.
class Section {
 public:
  /// whole     outlives the section
  /// ends      of all sections; index: of this one
  Section(WholeNetwork const& whole, Schedule const& schedule, std::vector<int> const& ends, int index)
      : whole_{whole}, index_{index}, range_{index == 0 ? 0 : ends[at(index - 1)], ends[at(index)]},
        local_(whole.g.values.size(), -1) {
    auto const last = index + 1 == static_cast<int>(ends.size());
    for (auto c = range_.first; c < range_.second; ++c) {
      auto call     = whole.g.calls[at(c)];
      auto const in = std::exchange(call.first_in, static_cast<int>(ins_.size()));
      for (int i = 0; i < call.ins; ++i) ins_.push_back(read(schedule, ends, whole.g.ins[at(in + i)], in + i));
      auto const out = std::exchange(call.first_out, static_cast<int>(values_.size()));
      for (int i = 0; i < call.outs; ++i) {
        local_[at(out + i)] = add(out + i);
        values_.back().call = c - range_.first;
      }
      calls_.push_back(call);
    }
    for (std::size_t o = 0; o < whole.g.outputs.size(); ++o) {  // the order in which gradients are added
      auto const v       = whole.g.outputs[o];
      auto const reader  = -1 - static_cast<int>(o);
      auto const written = whole.section_of(ends, whole.g.values[at(v)].call);
      if (written == index) leave({v, reader, static_cast<int>(ends.size()) - 1, true, local_[at(v)]});
      else if (last) arrivals_.push_back({v, reader, written, true, -1});
    }
    for (auto c = static_cast<int>(whole.g.calls.size()); c-- > range_.second;)
      for (int i = 0; i < whole.g.calls[at(c)].ins; ++i) {
        auto const reader = whole.g.calls[at(c)].first_in + i;
        auto const v      = whole.g.ins[at(reader)];
        if (local_[at(v)] >= 0 && whole.g.values[at(v)].call >= range_.first)
          leave({v, reader, whole.section_of(ends, c), schedule.d_in[at(reader)] >= 0, local_[at(v)]});
      }
  }

  Records records() const { return {values_, calls_, ins_, outputs_}; }
  int index() const { return index_; }
  WholeNetwork const& whole() const { return whole_; }
  /// The first call, and the one after the last.
  std::pair<int, int> range() const { return range_; }

  /// For each value, true if its gradient is needed.
  Span<bool const> trains() const { return {trains_.get(), values_.size()}; }

  /// Values that come in, each once for each place where it is read.
  std::vector<Crossing> const& arrivals() const { return arrivals_; }
  /// Values that leave, one for each output of records(): the outputs of the network, then values that other sections
  /// read, the last place first.
  std::vector<Crossing> const& departures() const { return departures_; }
  /// Inputs of the network that are read: (input, value).
  std::vector<std::pair<int, int>> const& inputs() const { return inputs_; }

 private:
  /// The value from which a call reads: its own, an input of the network, or one that arrives.
  int read(Schedule const& schedule, std::vector<int> const& ends, int v, int reader) {
    auto const& value = whole_.g.values[at(v)];
    if (value.call >= range_.first) return local_[at(v)];
    auto const made = add(v);
    if (value.call < 0) {
      auto i = 0;
      while (whole_.inputs[at(i)] != v) ++i;
      inputs_.push_back({i, made});
    } else {
      values_.back().call  = -1;
      values_.back().asked = whole_.trains[at(v)] && schedule.d_in[at(reader)] >= 0;
      arrivals_.push_back({v, reader, whole_.section_of(ends, value.call), values_.back().asked, made});
    }
    return made;
  }
  int add(int v) {
    values_.push_back(whole_.g.values[at(v)]);
    auto all = std::make_unique<bool[]>(values_.size());
    for (std::size_t i = 0; i + 1 < values_.size(); ++i) all[i] = trains_[i];
    all[values_.size() - 1] = whole_.trains[at(v)];
    trains_                 = std::move(all);
    return static_cast<int>(values_.size()) - 1;
  }
  void leave(Crossing const& one) {
    departures_.push_back(one);
    outputs_.push_back(one.local);
  }

  WholeNetwork whole_;
  int index_;
  std::pair<int, int> range_;
  std::vector<int> local_;  // of each value of the network; -1: none
  std::vector<ValueRecord> values_;
  std::vector<CallRecord> calls_;
  std::vector<int> ins_, outputs_;
  std::unique_ptr<bool[]> trains_;
  std::vector<Crossing> arrivals_, departures_;
  std::vector<std::pair<int, int>> inputs_;
};

}  // namespace chorale::nn::graph
