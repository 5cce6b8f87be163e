// SPDX-License-Identifier: Apache-2.0
//
// Evaluates a program of StableHLO on the host, as its specification says: floats in double, with halves rounded to
// their digits, integers of 32 bits exactly. One operation after the other on all replicas, slow and plain.
#pragma once

#include "test/support/stablehlo_numbers.hpp"

#include <chorale/nn/lowering/program.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

namespace hlo {

using nn::stablehlo::Convolved;
using nn::stablehlo::Operation;
using nn::stablehlo::Program;
using nn::stablehlo::Value;

/// The elements of a value, row major: integers and truths as whole numbers.
using Numbers = std::vector<double>;

/// The values of a program on R replicas that run in lockstep.
class Interpreter {
 public:
  /// parameters   [replica][i], as many replicas as the program has
  /// wanted       values to ask for later; what they do not need is not evaluated
  Interpreter(Program const& program, std::vector<std::vector<Numbers>> const& parameters,
              std::vector<Value> const& wanted)
      : program_{program}, values_(parameters.size(), std::vector<Numbers>(program.operations().size())) {
    expect(parameters.size() == static_cast<std::size_t>(program.replicas()), "parameters of each replica");
    auto needed = std::vector<bool>(program.operations().size(), false);
    for (auto const v : wanted) needed[at(v.id)] = true;
    for (auto i = needed.size(); i-- > 0;)
      if (needed[i])
        for (auto const x : program.operations()[i].in) needed[at(x)] = true;
    for (std::size_t r = 0; r < values_.size(); ++r) {
      expect(parameters[r].size() == program.parameters().size(), "a value for each parameter");
      for (std::size_t i = 0; i < parameters[r].size(); ++i) values_[r][at(program.parameters()[i])] = parameters[r][i];
    }
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) evaluate(static_cast<int>(i));
  }

  Numbers const& operator()(Value v, std::size_t replica = 0) const { return values_[replica][at(v.id)]; }

 private:
  void evaluate(int id) {
    auto const& o = program_.at(id);
    for (std::size_t r = 0; r < values_.size(); ++r) {
      auto& y = values_[r][at(id)];
      if (o.kind == Kind::parameter) {
        expect(y.size() == at(count(o.dims)), "a parameter of its size");
        continue;
      }
      y.assign(at(count(o.dims)), 0);
      if (o.kind >= Kind::all_reduce) together(o, r, y);
      else alone(o, values_[r], y);
      for (auto& number : y) number = as(o.element, number);
    }
  }

  /// Operations on all replicas' values.
  void together(Operation const& o, std::size_t r, Numbers& y) const {
    if (o.kind == Kind::replica_id) y[0] = static_cast<double>(r);
    if (o.kind == Kind::replica_id) return;
    auto first = std::size_t{0};  // of this replica's numbers among all
    for (auto const& values : values_) {
      auto const& x = values[at(o.in[0])];
      if (o.kind == Kind::all_gather) {
        std::ranges::copy(x, y.begin() + static_cast<std::ptrdiff_t>(first));
        first += x.size();
        continue;
      }
      if (o.kind == Kind::reduce_scatter) first = r * y.size();
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[first + i];
    }
  }

  void alone(Operation const& o, std::vector<Numbers> const& values, Numbers& y) const {
    auto const in    = [&](std::size_t i) -> Numbers const& { return values[at(o.in[i])]; };
    auto const dims  = [&](std::size_t i) -> Dims const& { return program_.at(o.in[i]).dims; };
    auto const& l    = o.lists;
    // y at each place is x at the place that f computes from it.
    auto const moves = [&](auto&& f) {
      auto const step = strides(dims(0));
      each(o.dims, [&](Dims const& place, std::size_t i) { y[i] = in(0)[at(f(place, step))]; });
    };
    switch (o.kind) {
      case Kind::constant:
        std::ranges::fill(y, is_float(o.element) ? static_cast<double>(static_cast<float>(o.number)) : o.number);
        break;
      case Kind::iota:
        each(o.dims, [&](Dims const& place, std::size_t i) { y[i] = static_cast<double>(place[at(l[0][0])]); });
        break;
      case Kind::convert:
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = converted(in(0)[i], program_.at(o.in[0]).element, o.element);
        break;
      case Kind::reshape: y = in(0); break;
      case Kind::broadcast:
        moves([&](Dims const& place, Dims const& step) {
          auto from = std::int64_t{0};
          for (std::size_t d = 0; d < step.size(); ++d) from += place[at(l[0][d])] * step[d];
          return from;
        });
        break;
      case Kind::transpose:
        moves([&](Dims const& place, Dims const& step) {
          auto from = std::int64_t{0};
          for (std::size_t d = 0; d < step.size(); ++d) from += place[d] * step[at(l[0][d])];
          return from;
        });
        break;
      case Kind::reverse:
        moves([&](Dims const& place, Dims const& step) {
          auto from = std::int64_t{0};
          for (std::size_t d = 0; d < step.size(); ++d) {
            auto const turned = has(l[0], d);
            from += (turned ? o.dims[d] - 1 - place[d] : place[d]) * step[d];
          }
          return from;
        });
        break;
      case Kind::slice:
        for (std::size_t d = 0; d < o.dims.size(); ++d)
          expect(0 <= l[0][d] && l[0][d] <= l[1][d] && l[1][d] <= dims(0)[d], "a slice within its operand");
        moves([&](Dims const& place, Dims const& step) {
          auto from = std::int64_t{0};
          for (std::size_t d = 0; d < step.size(); ++d) from += (l[0][d] + place[d] * l[2][d]) * step[d];
          return from;
        });
        break;
      case Kind::concatenate: concatenate(o, values, y); break;
      case Kind::pad: {
        std::ranges::fill(y, in(1)[0]);
        auto const step = strides(o.dims);
        each(dims(0), [&](Dims const& place, std::size_t i) {
          auto to = std::int64_t{0};
          for (std::size_t d = 0; d < step.size(); ++d) {
            auto const p = l[0][d] + place[d] * (l[2][d] + 1);
            if (p < 0 || p >= o.dims[d]) return;
            to += p * step[d];
          }
          y[at(to)] = in(0)[i];
        });
        break;
      }
      case Kind::compare:
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = holds(o.word, in(0)[i], in(1)[i]) ? 1 : 0;
        break;
      case Kind::select:
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = in(0)[i] != 0 ? in(1)[i] : in(2)[i];
        break;
      case Kind::reduce: reduce(o, in(0), dims(0), y); break;
      case Kind::reduce_window:
        std::ranges::fill(y, neutral(o.word));
        each(o.dims, [&](Dims const& place, std::size_t i) {
          each(l[0], [&](Dims const& inside, std::size_t) {
            y[i] = combined(o.word, y[i], in(0)[within(place, inside, l[1], dims(0))]);
          });
        });
        break;
      case Kind::select_and_scatter:
        each(dims(1), [&](Dims const& place, std::size_t i) {
          auto const first = within(place, Dims(place.size(), 0), l[1], dims(0));
          auto chosen      = first;
          each(l[0], [&](Dims const& inside, std::size_t) {
            auto const other = within(place, inside, l[1], dims(0));
            if (!(in(0)[chosen] >= in(0)[other])) chosen = other;  // of equal ones the first
          });
          y[chosen] += in(1)[i];
        });
        break;
      case Kind::dot: dot(o, in(0), dims(0), in(1), dims(1), y); break;
      case Kind::convolution: convolution(o, in(0), dims(0), in(1), dims(1), y); break;
      case Kind::gather: {
        auto const width = at(o.dims.back());
        for (std::size_t i = 0; i < in(1).size(); ++i) {
          auto const id = std::clamp(in(1)[i], 0.0, static_cast<double>(dims(0)[0] - 1));  // outside: the nearest row
          for (std::size_t j = 0; j < width; ++j) y[i * width + j] = in(0)[static_cast<std::size_t>(id) * width + j];
        }
        break;
      }
      case Kind::scatter: {
        auto const width = at(o.dims.back());
        y                = in(0);
        for (std::size_t i = 0; i < in(1).size(); ++i)
          if (auto const id = in(1)[i]; id >= 0 && id < static_cast<double>(o.dims[0]))  // outside: nothing
            for (std::size_t j = 0; j < width; ++j) y[static_cast<std::size_t>(id) * width + j] += in(2)[i * width + j];
        break;
      }
      default:
        for (std::size_t i = 0; i < y.size(); ++i)
          y[i] = o.in.size() == 2 ? binary(o.kind, o.element, in(0)[i], in(1)[i]) : unary(o.kind, o.element, in(0)[i]);
    }
  }

  static double neutral(std::string_view word) { return word == "add" ? 0 : -HUGE_VAL; }
  static double combined(std::string_view word, double a, double b) {
    return word == "add" ? a + b : binary(Kind::maximum, Element::f32, a, b);
  }
  /// The number of a window's element within what it moves over.
  static std::size_t within(Dims const& window, Dims const& inside, Dims const& steps, Dims const& dims) {
    auto number = std::int64_t{0};
    for (std::size_t d = 0; d < dims.size(); ++d) number = number * dims[d] + window[d] * steps[d] + inside[d];
    return at(number);
  }
  static void reduce(Operation const& o, Numbers const& x, Dims const& dims, Numbers& y) {
    std::ranges::fill(y, neutral(o.word));
    each(dims, [&](Dims const& place, std::size_t i) {
      auto to = std::int64_t{0};
      for (std::size_t d = 0; d < dims.size(); ++d)
        if (!has(o.lists[0], d)) to = to * dims[d] + place[d];
      y[at(to)] = combined(o.word, y[at(to)], x[i]);
    });
  }
  void concatenate(Operation const& o, std::vector<Numbers> const& values, Numbers& y) const {
    auto const along = at(o.lists[0][0]);
    auto const step  = strides(o.dims);
    auto begin       = std::int64_t{0};
    for (auto const x : o.in) {
      auto const& dims = program_.at(x).dims;
      each(dims, [&](Dims const& place, std::size_t i) {
        auto to = begin * step[along];
        for (std::size_t d = 0; d < dims.size(); ++d) to += place[d] * step[d];
        y[at(to)] = values[at(x)][i];
      });
      begin += dims[along];
    }
  }
  static void dot(Operation const& o, Numbers const& a, Dims const& a_dims, Numbers const& b, Dims const& b_dims,
                  Numbers& y) {
    auto const a_step = strides(a_dims), b_step = strides(b_dims);
    auto summed = Dims{};
    for (auto const d : o.lists[2]) summed.push_back(a_dims[at(d)]);
    auto free = std::array<std::vector<std::size_t>, 2>{};
    for (std::size_t side = 0; side < 2; ++side)
      for (std::size_t d = 0; d < (side == 0 ? a_dims : b_dims).size(); ++d) {
        if (!has(o.lists[side], d) && !has(o.lists[2 + side], d)) free[side].push_back(d);
      }
    auto froms = std::vector<std::array<std::size_t, 2>>{};  // where the factors of a sum lie
    each(summed, [&](Dims const& inside, std::size_t) {
      auto from = std::array<std::int64_t, 2>{};
      for (std::size_t i = 0; i < summed.size(); ++i)
        from[0] += inside[i] * a_step[at(o.lists[2][i])], from[1] += inside[i] * b_step[at(o.lists[3][i])];
      froms.push_back({at(from[0]), at(from[1])});
    });
    auto const batches = o.lists[0].size();
    expect(o.dims.size() == batches + free[0].size() + free[1].size(), "a product with its dimensions");
    each(o.dims, [&](Dims const& place, std::size_t i) {
      auto p = std::int64_t{0}, q = std::int64_t{0};
      for (std::size_t d = 0; d < batches; ++d)
        p += place[d] * a_step[at(o.lists[0][d])], q += place[d] * b_step[at(o.lists[1][d])];
      for (std::size_t d = 0; d < free[0].size(); ++d) p += place[batches + d] * a_step[free[0][d]];
      for (std::size_t d = 0; d < free[1].size(); ++d) q += place[batches + free[0].size() + d] * b_step[free[1][d]];
      for (auto const& [from_a, from_b] : froms) y[i] += a[at(p) + from_a] * b[at(q) + from_b];
    });
  }

  /// Where the four dimensions that letters name stand: in "[b, 0, 1, f]", "bf01" are 0, 3, 1, 2.
  static std::array<std::size_t, 4> places(std::string_view numbers, std::string_view letters) {
    auto made = std::array<std::size_t, 4>{};
    auto next = std::size_t{0};
    for (auto const c : numbers)
      if (auto const i = letters.find(c); i != letters.npos) made[i] = next++;
    expect(next == 4, "four dimensions in " + std::string{numbers});
    return made;
  }
  static void convolution(Operation const& o, Numbers const& x, Dims const& x_dims, Numbers const& k,
                          Dims const& k_dims, Numbers& y) {
    auto const middle = o.word.find("]x["), arrow = o.word.find("->");
    auto const px = places(o.word.substr(0, middle), "bf01");
    auto const pk = places(o.word.substr(middle + 2, arrow - middle - 2), "io01");
    auto const py = places(o.word.substr(arrow), "bf01");
    auto const sx = strides(x_dims), sk = strides(k_dims);
    auto const& l           = o.lists;
    auto const how          = Convolved{l[0], l[1], l[2], l[3], l[4], l[5][0]};
    auto const batch_groups = l[5][1];
    auto const channels = k_dims[pk[0]], filters = k_dims[pk[1]];
    expect(x_dims[px[1]] == channels * how.groups && x_dims[px[0]] == o.dims[py[0]] * batch_groups &&
               o.dims[py[1]] == filters && filters % (how.groups * batch_groups) == 0,
           "a convolution whose channels fit");
    for (std::size_t i = 0; i < 2; ++i) {
      auto const in = (x_dims[px[2 + i]] - 1) * how.spread[i] + 1 + how.low[i] + how.high[i];
      expect(o.dims[py[2 + i]] == (in - (k_dims[pk[2 + i]] - 1) * how.dilation[i] - 1) / how.stride[i] + 1,
             "a convolution of its height and width");
    }
    // The pixel of x that the kernel's entry t reads for pixel p of y; -1: padding, or between pixels.
    auto const pixel = [&](std::size_t i, std::int64_t p, std::int64_t t) {
      auto const from = p * how.stride[i] - how.low[i] + t * how.dilation[i];
      if (from < 0 || from % how.spread[i] != 0 || from / how.spread[i] >= x_dims[px[2 + i]]) return std::int64_t{-1};
      return from / how.spread[i];
    };
    each(o.dims, [&](Dims const& place, std::size_t number) {
      auto const f     = place[py[1]];
      auto const first = f / (filters / how.groups) * channels;  // channel of its group
      auto const row   = f / (filters / batch_groups) * o.dims[py[0]] + place[py[0]];
      for (std::int64_t h = 0; h < k_dims[pk[2]]; ++h) {
        auto const from_h = pixel(0, place[py[2]], h);
        if (from_h < 0) continue;
        for (std::int64_t w = 0; w < k_dims[pk[3]]; ++w) {
          auto const from_w = pixel(1, place[py[3]], w);
          if (from_w < 0) continue;
          auto const in_x = row * sx[px[0]] + first * sx[px[1]] + from_h * sx[px[2]] + from_w * sx[px[3]];
          auto const in_k = f * sk[pk[1]] + h * sk[pk[2]] + w * sk[pk[3]];
          for (std::int64_t c = 0; c < channels; ++c)
            y[number] += x[at(in_x + c * sx[px[1]])] * k[at(in_k + c * sk[pk[0]])];
        }
      }
    });
  }

  Program const& program_;
  std::vector<std::vector<Numbers>> values_;  // [replica][id]
};

}  // namespace hlo

using hlo::Interpreter;
using hlo::Numbers;

}  // namespace chorale::test
