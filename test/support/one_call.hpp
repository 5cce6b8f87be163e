// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::test {

/// One call of a layer of two functions, without a network around it: its inputs, outputs and variables are vectors.
template <class L, class... In> class OneCall {
  template <class Out> struct At;
  template <class... Out> struct At<nn::detail::List<Out...>> {
    using where   = nn::Place<L, nn::detail::List<In...>, nn::detail::List<Out...>>;
    using outputs = std::array<std::vector<float>, sizeof...(Out)>;
    static constexpr std::array<std::size_t, sizeof...(Out)> sizes{Out::size...};
    static auto spans(outputs& all) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::tuple<Span<typename Out::type>...>{Span<float>{all[I]}...};
      }(std::index_sequence_for<Out...>{});
    }
  };
  using Here = At<typename nn::graph::OutputsOf<decltype(L::output(In{}...))>::type>;

 public:
  static constexpr auto specs = nn::graph::Described<L, In...>::variables();

  std::array<std::vector<float>, specs.size()> v, dv;
  std::array<std::optional<RowGradients>, specs.size()> rows_of;
  typename Here::outputs y, dy;
  std::array<std::vector<float>, sizeof...(In)> dx;

  OneCall() {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      v[i].resize(specs[i].size());
      if (nn::graph::gives_rows<L> || specs[i].by_rows)
        rows_of[i].emplace(i, static_cast<std::size_t>(specs[i].dims[0]),
                           specs[i].size() / static_cast<std::size_t>(specs[i].dims[0]));
      else dv[i].resize(specs[i].size());
    }
  }

  /// Sets the rows of the next step. A ragged input has `lengths`.
  void read(std::size_t rows, std::vector<typename In::type> const&... x) { read(rows, {}, x...); }
  void read(std::size_t rows, std::array<std::vector<int>, sizeof...(In)> const& lengths,
            std::vector<typename In::type> const&... x) {
    lengths_ = lengths;
    x_       = {x...};
    at_.rows = rows;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(at_.in) = Span<typename In::type const>{std::get<I>(x_)}), ...);
      ((dx[I].assign(std::is_same_v<typename In::type, float> ? std::get<I>(x_).size() : 0, 0.0F), at_.d_in[I] = dx[I]),
       ...);
      ((at_.ragged[I] = In::is_ragged ? ragged(I) : nullptr), ...);
    }(std::index_sequence_for<In...>{});
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o].assign(rows * Here::sizes[o], std::nanf(""));
      dy[o].resize(y[o].size());
      at_.d_out[o] = dy[o];
    }
    at_.out = Here::spans(y);
  }
  void forward(AxisGroups axes = {}, std::string (*field)() = nullptr) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      at_.v[i]       = v[i];
      at_.dv[i]      = dv[i];
      at_.rows_of[i] = rows_of[i] ? &*rows_of[i] : nullptr;
    }
    at_.axes     = axes;
    at_.state    = &state_;
    at_.training = true;
    at_.fields.fill(field);
    L::forward(at_);
  }
  void backward() { L::backward(at_); }

  /// Forgets all gradients.
  void clear() {
    for (auto& d : dv) std::fill(d.begin(), d.end(), 0.0F);
    for (auto& rows : rows_of)
      if (rows) rows->clear();
  }

  /// The gradient of a variable, whichever form it has. NaN: a row that is not there.
  std::vector<float> gradient(std::size_t i) const {
    if (!rows_of[i]) return dv[i];
    auto all = std::vector<float>(v[i].size(), std::nanf(""));
    for (std::size_t k = 0; k < rows_of[i]->size(); ++k)
      std::copy_n((*rows_of[i])[k].data(), rows_of[i]->width(), &all[rows_of[i]->rows()[k] * rows_of[i]->width()]);
    return all;
  }

 private:
  nn::graph::RaggedRows const* ragged(std::size_t i) {
    auto& all = ragged_[i];
    starts_[i].clear();
    all.positions = 0;
    for (auto const n : lengths_[i])
      starts_[i].push_back(std::exchange(all.positions, all.positions + static_cast<std::size_t>(n)));
    all.lengths = lengths_[i];
    all.starts  = starts_[i];
    return &all;
  }

  typename Here::where at_;
  typename nn::detail::StateOf<L>::type state_;
  std::tuple<std::vector<typename In::type>...> x_;
  std::array<std::vector<int>, sizeof...(In)> lengths_;
  std::array<std::vector<std::size_t>, sizeof...(In)> starts_;
  std::array<nn::graph::RaggedRows, sizeof...(In)> ragged_;
};

/// This rank's part of the values of a whole variable; what is padding is NaN, so that whoever reads it is seen.
inline std::vector<float> part_of(std::vector<float> const& whole, VariableSpec const& spec, int part) {
  if (spec.split.parts == 1) return whole;
  auto of          = std::vector<float>(spec.size(), std::nanf(""));
  auto const dim   = static_cast<std::size_t>(spec.split.dim);
  auto const mine  = static_cast<std::size_t>(spec.dims[dim]);
  auto const there = static_cast<std::size_t>(spec.split.extent_of_whole(spec.dims[dim]));
  auto inner       = std::size_t{1};
  for (auto d = dim + 1; d < static_cast<std::size_t>(spec.rank); ++d) inner *= static_cast<std::size_t>(spec.dims[d]);
  for (std::size_t o = 0; o < of.size() / (mine * inner); ++o)
    for (std::size_t i = 0; i < mine; ++i)
      if (auto const k = spec.split.in_whole(part, static_cast<int>(i), static_cast<int>(mine)); k >= 0)
        std::copy_n(&whole[(o * there + static_cast<std::size_t>(k)) * inner], inner, &of[(o * mine + i) * inner]);
  return of;
}

/// Bit by bit, but any NaN equals any other.
inline bool equal_bits(std::vector<float> const& a, std::vector<float> const& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

}  // namespace chorale::test
