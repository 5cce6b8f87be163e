// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/step_header.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// Writes a random matrix whose rows have length 1 and are orthogonal to each other; if it has more rows than columns,
/// its columns. A function of (random, rows, columns), uniform over all such matrices.
///
/// value    (rows, columns)
/// cost     2 · longer · shorter² multiplications in double, and one copy of the matrix
/// source   tf.keras.initializers.Orthogonal; Saxe et al., ICLR 2014. Gram and Schmidt's process in the order that keeps
///          it stable: Björck, BIT 1967
inline void write_orthogonal(Span<float> value, std::size_t rows, std::size_t columns, Random const& random) {
  auto const n = std::min(rows, columns), length = std::max(rows, columns);
  auto q    = std::vector<double>(length * n);  // (length, n): its columns become orthogonal
  auto dots = std::vector<double>(n);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<double>(random.normal(i));
  for (std::size_t k = 0; k < n; ++k) {
    std::fill(dots.begin(), dots.end(), 0.0);  // of column k with itself and those after it
    for (std::size_t i = 0; i < length; ++i)
      for (std::size_t c = k; c < n; ++c) dots[c] += q[i * n + k] * q[i * n + c];
    auto const norm = std::sqrt(dots[k]);
    for (std::size_t i = 0; i < length; ++i) {
      auto const x = q[i * n + k] /= norm;
      for (std::size_t c = k + 1; c < n; ++c) q[i * n + c] -= x * (dots[c] / norm);
    }
  }
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      value[r * columns + c] = static_cast<float>(rows < columns ? q[c * n + r] : q[r * n + c]);
}

/// A named tensor of one replica, trained, a moving average or tracked: a view into its arena.
struct Variable {
  std::string_view name;
  Span<int const> shape;
  Span<float> value;
};

/// All variables of one replica: one contiguous buffer, laid out by the plan.
struct Variables {
  Span<float> values;  // header, padding, trailer, tables
  Span<PlannedVariable const> plan;
  std::size_t tables = 0;  // elements at the end: see RowGradients

  /// The dense variables, laid out as the body of their gradients.
  Span<float> body() const {
    return values.subspan(plan::header, values.size() - tables - plan::header - plan::trailer);
  }
  std::size_t size() const { return plan.size(); }
  Variable operator[](std::size_t i) const {
    auto const& v = plan[i];
    return {v.name, Span<int const>{v.spec.dims}.first(static_cast<std::size_t>(v.spec.rank)),
            values.subspan(v.offset, v.size)};
  }

  /// Goes over the variables, for (auto const& variable : variables): each is a view.
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type      = Variable;

    Iterator() = default;
    Iterator(Span<float> values, PlannedVariable const* at) : values_{values}, at_{at} {}

    Variable operator*() const { return Variables{values_, {at_, 1}}[0]; }
    Iterator& operator++() { return ++at_, *this; }
    Iterator operator++(int) {
      auto const before = *this;
      ++at_;
      return before;
    }
    friend bool operator==(Iterator const& a, Iterator const& b) { return a.at_ == b.at_; }

   private:
    Span<float> values_;
    PlannedVariable const* at_ = nullptr;
  };
  Iterator begin() const { return {values, plan.data()}; }
  Iterator end() const { return {values, plan.data() + plan.size()}; }
};

/// Variables of a network with a layer that sums over all replicas in every step: no replica can train separately.
struct JoinedVariables : Variables {};

/// The gradients of one step, laid out as the variables: sums over rows, with their count.
///
/// keeps   values are sums; the update divides them by counted() once, after the sums were reduced
struct Gradients {
  Span<float> values;  // the header holds loss, rows and metrics
  Span<PlannedVariable const> plan;
  Span<std::size_t const> ends;       // of the buckets, ascending
  std::uint64_t owner       = 0;      // differs for each instance of a model
  Span<RowGradients> tables = {};     // gradients that are rows; sums, too
  bool counts_positions     = false;  // the loss is one of loss::per_position

  StepHeader<float> header() const { return StepHeader{values}; }
  StepTrailer<float> trailer() const { return StepTrailer{values}; }
  float loss() const { return header().loss(); }                                      // sum over rows()
  float rows() const { return header().rows(); }                                      // exact up to 2^24
  float counted() const { return counts_positions ? header().positions() : rows(); }  // what the mean divides by
  Span<float> body() const { return values.subspan(plan::header, values.size() - plan::header - plan::trailer); }
  /// The gradient of variable i; empty if it is rows, which `tables` have.
  Span<float> operator[](std::size_t i) const {
    return plan[i].spec.by_rows ? Span<float>{} : values.subspan(plan[i].offset, plan[i].size);
  }
};

/// A `ready` callback that does nothing, for callers that only read the gradients after backward has returned.
struct LooksAtEnd {
  void operator()(std::size_t) const {}
};

/// A `ready` callback that does nothing, for callers that then update the model with these gradients, unchanged: where
/// a device QueuesWork, that update is queued right after backward.
struct UpdatesAtEnd : LooksAtEnd {};

/// What a step does when a loss or a gradient is not finite, on any replica. All replicas do the same.
enum class NonFinite {
  stop,  // NumericFault; no variable was changed
  skip,  // no update in this step; it is counted
  allow  // not checked
};

/// Writes the first values of a variable: a function of (seed, index) alone, so every replica gets the same bits. For a
/// split variable, the values of one part of the whole.
///
/// part    of a split variable: this rank's place along the axis
/// throws  BadArgument when a split variable is orthogonal
/// source  tf.keras.initializers
inline void initialize(Span<float> value, VariableSpec const& spec, Random const& random, int part = 0) {
  auto const in = static_cast<float>(spec.fan_in), out = static_cast<float>(spec.fan_out);
  auto const fill = [&](auto&& make) {  // of the index in the whole variable
    each_run(spec, part, [&](Range run, std::size_t first) {
      for (std::size_t i = 0; i < run.size(); ++i) value[run.begin + i] = make(first + i);
    });
  };
  auto const uniform = [&](float limit) { fill([&](std::size_t i) { return random.uniform(i, -limit, limit); }); };
  auto const normal  = [&](float sigma) { fill([&](std::size_t i) { return sigma * random.normal(i); }); };
  switch (spec.init) {
    case Init::zeros: return fill([](std::size_t) { return 0.0F; });
    case Init::ones: return fill([](std::size_t) { return 1.0F; });
    case Init::glorot_uniform: return uniform(std::sqrt(6.0F / (in + out)));
    case Init::glorot_normal: return normal(std::sqrt(2.0F / (in + out)));
    case Init::he_uniform: return uniform(std::sqrt(6.0F / in));
    case Init::he_normal: return normal(std::sqrt(2.0F / in));
    case Init::orthogonal: {
      CHORALE_EXPECTS(spec.split.parts == 1,
                      "variable " + std::string{spec.name} + " is split over axis " + std::string{spec.split.along} +
                          ", and cannot begin orthogonal, which is known of whole matrices alone. Use "
                          "nn::GlorotUniform");
      auto const columns = static_cast<std::size_t>(spec.dims[static_cast<std::size_t>(std::max(spec.rank, 1) - 1)]);
      return write_orthogonal(value, value.size() / columns, columns, random);
    }
    case Init::unit_forget:
      return fill([n = value.size() * static_cast<std::size_t>(spec.split.parts)](std::size_t i) {
        return i >= n / 4 && i < n / 2 ? 1.0F : 0.0F;
      });
  }
}

}  // namespace chorale
