// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/nn/lowering/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

namespace detail {

/// The gradients of a value by all values of a program, added up from its last operation to the first.
class Backward {
 public:
  explicit Backward(Program& program)
      : program_{&program}, gradients_(program.operations().size()), parts_(gradients_.size()) {}

  /// Begins with the gradient of the value by itself.
  void begin(Value of) { add(of.id, program_->constant(1, of.dims(), of.element())); }

  /// Passes the gradient of each operation on to its operands that depend on a wanted value.
  ///
  /// wanted   ids of values
  void run(std::vector<int> const& wanted) {
    auto const n = static_cast<int>(gradients_.size());
    auto leads   = std::vector<char>(gradients_.size(), 0);  // 1: it depends on a wanted value
    for (auto const id : wanted) leads[static_cast<std::size_t>(id)] = 1;
    for (int i = 0; i < n; ++i)
      for (auto const x : at(i).in)
        if (leads[static_cast<std::size_t>(x)] != 0 && is_float(at(i).element)) leads[static_cast<std::size_t>(i)] = 1;
    leads_ = std::move(leads);
    for (int i = n; i-- > 0;) {
      join(i);
      if (gradient(i) && leads_[static_cast<std::size_t>(i)] != 0 && !at(i).in.empty()) pass(i, gradient(i));
    }
  }

  Value gradient(int id) const { return gradients_[static_cast<std::size_t>(id)]; }

 private:
  // A copy: what is appended moves the program's operations.
  Operation at(int id) const { return program_->at(id); }
  Value value(int id) const { return {program_, id}; }

  void add(int id, Value g) {
    auto& all = gradients_[static_cast<std::size_t>(id)];
    all       = all ? all + g : g;
  }

  void pass(int id, Value g) {
    auto const o    = at(id);
    auto const in   = [&](std::size_t i) { return value(o.in[i]); };
    auto const asks = [&](std::size_t i) { return leads_[static_cast<std::size_t>(o.in[i])] != 0; };
    auto const give = [&](std::size_t i, auto&& f) {
      if (asks(i)) add(o.in[i], f());
    };
    auto const y = value(id);
    switch (o.kind) {
      case Kind::stop: break;
      case Kind::convert: give(0, [&] { return convert(g, in(0).element()); }); break;
      case Kind::reshape: give(0, [&] { return reshape(g, in(0).dims()); }); break;
      case Kind::broadcast: give(0, [&] { return of_broadcast(o, g); }); break;
      case Kind::transpose: give(0, [&] { return transpose(g, inverse(o.lists[0])); }); break;
      case Kind::reverse: give(0, [&] { return reverse(g, o.lists[0]); }); break;
      case Kind::slice:
        if (asks(0)) add_slice(o, g);
        break;
      case Kind::concatenate: of_concatenate(o, g); break;
      case Kind::pad: give(0, [&] { return of_pad(o, g, in(0).dims()); }); break;
      case Kind::add: give(0, [&] { return g; }), give(1, [&] { return g; }); break;
      case Kind::subtract: give(0, [&] { return g; }), give(1, [&] { return -g; }); break;
      case Kind::multiply: give(0, [&] { return g * in(1); }), give(1, [&] { return g * in(0); }); break;
      case Kind::divide:
        give(0, [&] { return g / in(1); });
        give(1, [&] { return -(g * y / in(1)); });
        break;
      case Kind::maximum:  // of equal numbers, b has the gradient
        give(0, [&] { return select(compare(in(0), "GT", in(1)), g, 0.0); });
        give(1, [&] { return select(compare(in(0), "GT", in(1)), 0.0, g); });
        break;
      case Kind::minimum:
        give(0, [&] { return select(compare(in(0), "LT", in(1)), g, 0.0); });
        give(1, [&] { return select(compare(in(0), "LT", in(1)), 0.0, g); });
        break;
      case Kind::power: give(0, [&] { return g * in(1) * power(in(0), in(1) - 1.0); }), refuse(asks(1), "power"); break;
      case Kind::negate: give(0, [&] { return -g; }); break;
      case Kind::abs: give(0, [&] { return g * sign(in(0)); }); break;
      case Kind::exponential: give(0, [&] { return g * y; }); break;
      case Kind::log: give(0, [&] { return g / in(0); }); break;
      case Kind::log_plus_one: give(0, [&] { return g / (in(0) + 1.0); }); break;
      case Kind::exponential_minus_one: give(0, [&] { return g * (y + 1.0); }); break;
      case Kind::sqrt: give(0, [&] { return g * 0.5 / y; }); break;
      case Kind::rsqrt: give(0, [&] { return g * -0.5 * y / in(0); }); break;
      case Kind::tanh: give(0, [&] { return g * (1.0 - y * y); }); break;
      case Kind::logistic: give(0, [&] { return g * y * (1.0 - y); }); break;
      case Kind::erfc: give(0, [&] { return g * -1.1283791670955126 * exp(-(in(0) * in(0))); }); break;
      case Kind::sine: give(0, [&] { return g * cos(in(0)); }); break;
      case Kind::cosine: give(0, [&] { return -(g * sin(in(0))); }); break;
      case Kind::sign:
      case Kind::floor: break;  // constant but for its steps
      case Kind::select:
        give(1, [&] { return select(in(0), g, 0.0); });
        give(2, [&] { return select(in(0), 0.0, g); });
        break;
      case Kind::reduce: give(0, [&] { return of_reduce(o, g, in(0), y); }); break;
      case Kind::reduce_window: give(0, [&] { return of_windows(o, g, in(0)); }); break;
      case Kind::dot:
        give(0, [&] { return of_dot(o, g, in(0), in(1), true); });
        give(1, [&] { return of_dot(o, g, in(1), in(0), false); });
        break;
      case Kind::convolution:
        give(0, [&] { return of_images(o, g, in(0), in(1)); });
        give(1, [&] { return of_kernel(o, g, in(0), in(1)); });
        break;
      case Kind::gather: give(0, [&] { return scatter(g, in(1), in(0).dim(0)); }); break;
      case Kind::scatter:
        give(0, [&] { return g; });
        give(2, [&] { return gather(g, in(1)); });
        break;
      case Kind::all_reduce: give(0, [&] { return all_reduce(g); }); break;
      default: refuse(true, "an operation without a gradient");
    }
  }

  static void refuse(bool asked, std::string const& what) {
    CHORALE_EXPECTS(!asked, "a program of StableHLO asks for the gradient of " + what);
  }
  static Dims inverse(Dims const& order) {
    auto made = Dims(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      made[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    return made;
  }

  Value of_broadcast(Operation const& o, Value g) const {
    auto along = Dims{};
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(o.dims.size()); ++i)
      if (std::ranges::find(o.lists[0], i) == o.lists[0].end()) along.push_back(i);
    return sum(g, along);
  }
  /// Adds the gradient of a slice. Gradients of adjacent slices are kept, and put together by join(): a sum of as many
  /// values, each as large as the whole, would cost the square of their number.
  void add_slice(Operation const& o, Value g) {
    auto const id   = o.in[0];
    auto const dims = value(id).dims();
    auto along      = std::vector<std::size_t>{};  // what it is a part of
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (o.dims[i] != dims[i]) along.push_back(i);
    auto& parts     = parts_[static_cast<std::size_t>(id)];
    auto const fits = [&] {
      if (along.size() != 1 || o.lists[2][along[0]] != 1) return false;
      if (!parts.empty() && parts[0].along != along[0]) return false;
      return std::ranges::none_of(
          parts, [&](Part const& p) { return p.begin < o.lists[1][along[0]] && o.lists[0][along[0]] < p.end; });
    };
    if (fits()) parts.push_back({along[0], o.lists[0][along[0]], o.lists[1][along[0]], g, o});
    else add(id, of_slice(o, g, dims));
  }
  /// Adds the gradients of a value's slices.
  void join(int id) {
    auto parts = std::exchange(parts_[static_cast<std::size_t>(id)], {});
    if (parts.empty()) return;
    auto dims = value(id).dims();
    if (parts.size() == 1) return add(id, of_slice(parts[0].slice, parts[0].gradient, dims));
    std::ranges::sort(parts, {}, &Part::begin);
    auto const along = parts[0].along;
    auto const end   = dims[along];
    auto all         = std::vector<Value>{};
    auto reached     = std::int64_t{0};
    auto const zeros = [&](std::int64_t up_to) {
      dims[along] = up_to - reached;
      if (dims[along] > 0) all.push_back(program_->constant(0, dims, value(id).element()));
    };
    for (auto const& part : parts) {
      zeros(part.begin);
      all.push_back(part.gradient);
      reached = part.end;
    }
    zeros(end);
    add(id, concatenate(all, along));
  }
  Value of_slice(Operation const& o, Value g, Dims const& dims) const {
    auto high = Dims{}, inner = Dims{};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      auto const reached = o.lists[0][i] + (o.dims[i] - 1) * o.lists[2][i] + 1;
      high.push_back(dims[i] - reached);
      inner.push_back(o.lists[2][i] - 1);
    }
    return stablehlo::pad(g, 0, o.lists[0], high, inner);
  }
  void of_concatenate(Operation const& o, Value g) {
    auto const along = static_cast<std::size_t>(o.lists[0][0]);
    auto begin       = std::int64_t{0};
    for (auto const x : o.in) {
      auto const end = begin + value(x).dim(along);
      if (leads_[static_cast<std::size_t>(x)] != 0) add(x, slice_of(g, along, begin, end));
      begin = end;
    }
  }
  Value of_pad(Operation const& o, Value g, Dims const& dims) const {
    auto end = Dims{}, step = Dims{};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      step.push_back(o.lists[2][i] + 1);
      end.push_back(o.lists[0][i] + (dims[i] - 1) * step[i] + 1);
    }
    return slice(g, o.lists[0], end, step);
  }
  /// Repeats what was reduced along the dimensions of x that it has not.
  static Value repeated(Operation const& o, Value reduced, Value x) {
    auto where = Dims{};
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.rank()); ++i)
      if (std::ranges::find(o.lists[0], i) == o.lists[0].end()) where.push_back(i);
    return broadcast(reduced, x.dims(), where);
  }
  Value of_reduce(Operation const& o, Value g, Value x, Value y) const {
    if (o.word == "add") return repeated(o, g, x);
    auto const largest = compare(x, "EQ", repeated(o, y, x));  // of several, each has its part
    auto const ones    = select(largest, detail::like(x, 1), 0.0);
    return select(largest, repeated(o, g / sum(ones, o.lists[0]), x), 0.0);
  }
  Value of_windows(Operation const& o, Value g, Value x) const {
    if (o.word == "maximum")
      return program_->append({Kind::select_and_scatter, x.element(), x.dims(), {x.id, g.id}, o.lists});
    auto low = Dims{}, high = Dims{}, inner = Dims{};
    for (std::size_t i = 0; i < x.rank(); ++i) {
      low.push_back(o.lists[0][i] - 1);
      high.push_back(x.dim(i) - ((o.dims[i] - 1) * o.lists[1][i] + 1));
      inner.push_back(o.lists[1][i] - 1);
    }
    return windows(stablehlo::pad(g, 0, low, high, inner), "add", o.lists[0], Dims(x.rank(), 1));
  }

  /// The gradient of a product by one of its factors.
  ///
  /// x, other   the factor, and the other one; is_first: x is the first
  Value of_dot(Operation const& o, Value g, Value x, Value other, bool is_first) const {
    auto const& batch       = o.lists[is_first ? 0 : 1];
    auto const& batch_other = o.lists[is_first ? 1 : 0];
    auto const& summed      = o.lists[is_first ? 2 : 3];
    auto const& sum_other   = o.lists[is_first ? 3 : 2];
    auto const free_of      = [](Value v, Dims const& a, Dims const& b) {
      auto free = Dims{};
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(v.rank()); ++i)
        if (std::ranges::find(a, i) == a.end() && std::ranges::find(b, i) == b.end()) free.push_back(i);
      return free;
    };
    auto const free       = free_of(x, batch, summed);
    auto const free_other = free_of(other, batch_other, sum_other);
    auto const batches    = static_cast<std::int64_t>(batch.size());
    auto in_g = Dims{}, batch_g = Dims{};  // where g has other's, and batches
    for (std::int64_t i = 0; i < batches; ++i) batch_g.push_back(i);
    auto const first = batches + (is_first ? static_cast<std::int64_t>(free.size()) : 0);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(free_other.size()); ++i) in_g.push_back(first + i);
    auto const made = dot(g, other, in_g, free_other, batch_g, batch_other);  // batches, free of x, summed of other
    auto order      = Dims(x.rank());  // for each dimension of x, where made has it
    for (std::size_t i = 0; i < batch.size(); ++i)
      order[static_cast<std::size_t>(batch[i])] = static_cast<std::int64_t>(i);
    for (std::size_t i = 0; i < free.size(); ++i)
      order[static_cast<std::size_t>(free[i])] = batches + static_cast<std::int64_t>(i);
    auto sorted = sum_other;  // the order in which `made` has them
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < summed.size(); ++i) {
      auto const place = std::ranges::find(sorted, sum_other[i]) - sorted.begin();
      order[static_cast<std::size_t>(summed[i])] =
          batches + static_cast<std::int64_t>(free.size()) + static_cast<std::int64_t>(place);
    }
    return transpose(made, order);
  }

  static Convolved how_of(Operation const& o) {
    return {o.lists[0], o.lists[1], o.lists[2], o.lists[3], o.lists[4], o.lists[5][0]};
  }
  /// By the images: a convolution of g, spread by the stride, with the mirrored kernel whose channels and filters have
  /// changed places within each group.
  Value of_images(Operation const& o, Value g, Value x, Value kernel) const {
    auto const how = how_of(o);
    auto const h = kernel.dim(0), w = kernel.dim(1), c = kernel.dim(2), f = kernel.dim(3) / how.groups;
    auto turned = reshape(kernel, {h, w, c, how.groups, f});
    turned      = reshape(transpose(turned, {0, 1, 4, 3, 2}), {h, w, f, how.groups * c});
    auto back   = Convolved{.stride = how.spread, .spread = how.stride, .dilation = how.dilation, .groups = how.groups};
    for (std::size_t i = 0; i < 2; ++i) {
      auto const in = (x.dim(i + 1) - 1) * how.spread[i] + 1, reach = (kernel.dim(i) - 1) * how.dilation[i] + 1;
      auto const out = (o.dims[i + 1] - 1) * how.stride[i] + 1;
      back.low[i]    = reach - how.low[i] - 1;
      back.high[i]   = in + reach - 1 - out - back.low[i];
    }
    return detail::convolution(g, reverse(turned, {0, 1}), back, images, x.dims());
  }
  /// By the kernel: a convolution of the images with g, in which rows of the batch are what channels were.
  Value of_kernel(Operation const& o, Value g, Value x, Value kernel) const {
    auto const how = how_of(o);
    auto back      = Convolved{.stride = how.dilation, .low = how.low, .spread = how.spread, .dilation = how.stride};
    for (std::size_t i = 0; i < 2; ++i) {
      auto const in = (x.dim(i + 1) - 1) * how.spread[i] + 1, reach = (kernel.dim(i) - 1) * how.dilation[i] + 1;
      auto const out = (o.dims[i + 1] - 1) * how.stride[i] + 1;
      back.high[i]   = out - in + reach - how.low[i] - 1;
    }
    return detail::convolution(x, g, back, "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", kernel.dims(), how.groups);
  }

  /// The gradient of a slice [begin, end) of one dimension.
  struct Part {
    std::size_t along;
    std::int64_t begin, end;
    Value gradient;
    Operation slice;
  };

  Program* program_;
  std::vector<Value> gradients_;          // by id; empty: none
  std::vector<std::vector<Part>> parts_;  // by id; not yet a part of its gradient
  std::vector<char> leads_;
};

}  // namespace detail

/// The gradients of a number by some values of its program, zeros where it does not depend on them.
///
/// of        a value of rank 0; on several replicas each differentiates its own, and a sum over replicas in the middle
///           passes the sum of their gradients on
/// throws    BadArgument when an operation between has no gradient
inline std::vector<Value> gradients(Value of, std::vector<Value> const& by) {
  auto backward = detail::Backward{*of.program};
  auto wanted   = std::vector<int>{};
  for (auto const value : by) wanted.push_back(value.id);
  backward.begin(of);
  backward.run(wanted);
  auto made = std::vector<Value>{};
  for (auto const value : by) {
    auto const g = backward.gradient(value.id);
    made.push_back(g ? g : of.program->constant(0, value.dims(), value.element()));
  }
  return made;
}

}  // namespace chorale::nn::stablehlo
