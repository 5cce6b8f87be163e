// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/matmul.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

namespace detail {

/// y = x Wᵀ, with the table W of an Embedding.
template <int Rows, int Width> struct Logits : Layer<Logits<Rows, Width>> {
  static constexpr std::string_view name = "embedding";
  static constexpr bool each_position    = true;

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank > 0 && X::back == Width;

  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: logits(x) of an Embedding takes vectors (B, .., width) as wide as its own");
  }
  template <class X> requires fits<X> static constexpr auto output(X) { return WithBack<X, Rows>{}; }
  static constexpr auto variables(auto) { return std::array{table("embeddings", Rows, Width)}; }
  static constexpr std::size_t products(auto x) { return x.size * Rows; }

  static void forward(auto& at) {
    product(at, Rows, Width, {at.x().data(), Width}, {at.v[0].data(), Width, true}, {at.y().data(), Rows});
  }
  static void backward(auto& at) {
    auto const n = at.x().size() / Width;
    cpu::matmul(Rows, Width, n, {at.dy().data(), Rows, true}, {at.x().data(), Width},
                {.data = at.dv[0].data(), .stride = Width, .beta = 1});
    if (!at.dx().empty())
      product(at, Width, Rows, {at.dy().data(), Rows}, {at.v[0].data(), Width},
              {.data = at.dx().data(), .stride = Width, .beta = 1});
  }

  template <class D> static void queue_forward(auto& at) {
    Kernels<D>::product(at.x().size() / Width, Rows, Width, {at.x().data()}, {at.v[0].data(), true}, at.y().data());
  }
  template <class D> static void queue_backward(auto& at) {
    auto const n = at.x().size() / Width;
    Kernels<D>::add_product(Rows, Width, n, {at.dy().data(), true}, {at.x().data()}, at.dv[0].data());
    if (!at.dx().empty()) Kernels<D>::add_product(n, Width, Rows, {at.dy().data()}, {at.v[0].data()}, at.dx().data());
  }

 private:
  /// The product of all vectors with a matrix. Ragged values have room for whole blocks.
  static void product(auto const& at, std::size_t n, std::size_t k, cpu::Factor a, cpu::Factor b, cpu::Product c) {
    auto const vectors = at.x().size() / Width;
    if (at.ragged[0] == nullptr) cpu::matmul(vectors, n, k, a, b, c);
    else cpu::matmul_in_blocks<graph::RaggedRows::block>(vectors, n, k, a, b, c);
  }
};

/// Reports an id that is in no row of a table.
[[noreturn]] inline void throw_unknown_id(int id, int rows, std::size_t row, std::size_t position,
                                          std::string (*field)()) {
  throw BadArgument{"row " + std::to_string(row) + " of the batch has id " + std::to_string(id) + " at position " +
                        std::to_string(position) + (field == nullptr ? "" : " of field " + field()) +
                        ", but the nn::Embedding that takes it has " + std::to_string(rows) + " rows, 0 to " +
                        std::to_string(rows - 1) + ".",
                    "an Embedding with more rows, or ids below " + std::to_string(rows) + "."};
}

}  // namespace detail

/// Option of an Embedding: the gradient of its table is dense, as for any other variable. An optimizer then
/// updates all rows in each step, as in Keras.
struct DenseGradient {
  static constexpr bool gives_rows = false;
};

namespace detail {

/// Base of the layers with a table of so many rows.
template <int Rows, int Width> struct TableSize {
  static constexpr bool is_sized = Rows > 0 && Width > 0;
  static constexpr void check_size() {
    static_assert(is_sized, "chorale: Embedding<rows, width> needs both to be at least 1");
  }
};

/// The table of an embedding, and what all embeddings do with its rows.
template <int Rows, int Width, class... Options> struct Table {
  static constexpr bool by_rows      = ((Options::gives_rows) && ... && true);
  static constexpr std::size_t ahead = 16;  // ids whose memory is fetched before

  static constexpr auto variables() { return std::array{table("embeddings", Rows, Width)}; }

  template <class X> static constexpr void check() {
    static_assert(!std::is_same_v<typename X::type, float>,
                  "chorale: Embedding takes ids, a field of int or of bytes, but what comes in are numbers");
  }
  /// Checks that all ids are rows of the table.
  static void expect_known(auto const& at) {
    for (std::size_t i = 0; i < at.x().size(); ++i)
      if (int const id = at.x()[i]; id < 0 || id >= Rows) {
        auto row = std::size_t{0}, first = row;
        if (auto const lengths = at.lengths(); lengths.empty()) {
          auto const per_row = at.x().size() / at.rows;
          row = i / per_row, first = row * per_row;
        } else {
          auto const ids = at.x().size() / at.ragged[0]->positions;  // of a position
          at.each_row([&](std::size_t r, std::size_t begin, std::size_t n) {
            if (begin * ids <= i && n > 0) row = r, first = begin * ids;
          });
        }
        throw_unknown_id(id, Rows, at.first + row, i - first, at.fields[0]);
      }
  }
  static float* row(auto const& at, int id) { return &at.v[0][static_cast<std::size_t>(id) * Width]; }

  /// Asks the memory for the row of the id that comes some places after position i.
  static void fetch(auto const& at, std::size_t i) {
    if (i + ahead >= at.x().size()) return;
    auto const* const next = row(at, at.x()[i + ahead]);
    for (std::size_t c = 0; c < Width; c += plan::align) __builtin_prefetch(next + c);
  }
  /// Asks the memory for the place of the gradient of the id that comes some places after position i.
  static void fetch_gradient(auto const& at, std::size_t i) {
    if (i + ahead < at.x().size()) at.rows_of[0]->fetch(static_cast<std::size_t>(at.x()[i + ahead]));
  }
  /// Adds the gradient of an id's row to the gradient of the whole table.
  static void add(auto& at, int id, float const* gradient) {
    auto* const sum = &at.dv[0][static_cast<std::size_t>(id) * Width];
    for (std::size_t c = 0; c < Width; ++c) sum[c] += gradient[c];
  }
};

}  // namespace detail

/// Replaces each id by a row of a trained table.
///
/// x         (B, ..) ids of int or of bytes, each in [0, Rows)
/// table     (Rows, Width), uniform between -0.05 and 0.05
/// y         (B, .., Width)
/// keeps     the gradient is the rows whose ids came: only these travel between replicas, and only these are updated,
///           so that what Adam remembers of the others rests. Not with the option DenseGradient, nor in a network that
///           also uses logits()
/// throws    BadArgument when an id is in no row of the table, before anything was computed from it
/// source    tf.keras.layers.Embedding; torch.nn.Embedding(sparse=True)
template <int Rows, int Width, class... Options>
struct Embedding : Layer<Embedding<Rows, Width, Options...>>, detail::TableSize<Rows, Width> {
  using Layer<Embedding>::Layer;
  using table                            = detail::Table<Rows, Width, Options...>;
  static constexpr std::string_view name = "embedding";
  static constexpr bool keeps_x = true, each_position = true;
  static constexpr bool gives_rows = table::by_rows;

  template <class X> static constexpr void check() { table::template check<X>(); }
  template <class T, int... D> requires(!std::is_same_v<T, float>) static constexpr auto output(Of<T, D...>) {
    return Of<float, D..., Width>{};
  }
  static constexpr auto variables(auto) { return table::variables(); }

  /// The products of x with each row of the table: a last layer that shares the weights of this one.
  ///
  /// x         (B, .., Width)
  /// returns   (B, .., Rows)
  /// source    Press & Wolf, "Using the Output Embedding to Improve Language Models", EACL 2017
  template <class D, class O> constexpr auto logits(Tensor<D, O> x) const {
    return graph::call<D, detail::Logits<Rows, Width>>(this->id(), this->name_, x);
  }

  static void forward(auto& at) {
    table::expect_known(at);
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      table::fetch(at, i);
      std::copy_n(table::row(at, at.x()[i]), Width, &at.y()[i * Width]);
    }
  }
  static void backward(auto& at) {
    auto* const rows = at.rows_of[0];
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      auto const* const d = &at.dy()[i * Width];
      if (rows == nullptr) table::add(at, at.x()[i], d);
      else table::fetch_gradient(at, i), rows->add(static_cast<std::size_t>(at.x()[i]), d);
    }
  }

  static void look(auto const& at) { table::expect_known(at); }
  template <class D> static void queue_forward(auto& at) {
    Kernels<D>::gather(at.x().size(), Rows, Width, at.v[0].data(), at.x().data(), at.y().data());
  }
  template <class D> static void queue_backward(auto& at) {
    Kernels<D>::gather_back(at.x().size(), Rows, Width, at.x().data(), at.dy().data(), at.dv[0].data());
  }
};

/// How the vectors of a bag of ids become one.
enum class Bag { sum, mean };

namespace detail {

/// What the sum of a bag of n ids is multiplied by.
constexpr float factor_of(Bag as, std::size_t n) { return as == Bag::mean ? 1 / static_cast<float>(n) : 1.0F; }

}  // namespace detail

/// Replaces the ids of each row by the sum or the mean of their rows in a trained table: nn::Embedding and the mean over
/// its vectors in one pass.
///
/// x         (B, n) ids, each in [0, Rows); an id may occur several times. n may be ragged
/// table     (Rows, Width), uniform between -0.05 and 0.05
/// y         (B, Width); of a row without ids, zeros
/// keeps     the gradient is the rows whose ids came: see Embedding
/// throws    BadArgument when an id is in no row of the table, before anything was computed from it
/// source    torch.nn.EmbeddingBag, whose mode is "mean" as well if nothing is said
template <int Rows, int Width, Bag As = Bag::mean, class... Options>
struct EmbeddingBag : Layer<EmbeddingBag<Rows, Width, As, Options...>>, detail::TableSize<Rows, Width> {
  using Layer<EmbeddingBag>::Layer;
  using table                            = detail::Table<Rows, Width, Options...>;
  static constexpr std::string_view name = "embedding_bag";
  static constexpr bool keeps_x = true, reads_lengths = true;
  static constexpr bool gives_rows = table::by_rows;

  template <class X> static constexpr void check() {
    table::template check<X>();
    static_assert(X::rank == 1, "chorale: EmbeddingBag takes (B, n) ids; put nn::reshape<n>(...) before it");
  }
  template <class T, int N> requires(!std::is_same_v<T, float>) static constexpr auto output(Of<T, N>) {
    return Of<float, Width>{};
  }
  static constexpr auto variables(auto) { return table::variables(); }

  static void forward(auto& at) {
    table::expect_known(at);
    at.each_row([&](std::size_t r, std::size_t first, std::size_t n) {
      auto const y = at.y().subspan(r * Width, Width);
      std::fill(y.begin(), y.end(), 0.0F);
      if (n == 0) return;
      for (std::size_t i = first; i < first + n; ++i) {
        table::fetch(at, i);
        auto const* const row = table::row(at, at.x()[i]);
        for (std::size_t c = 0; c < Width; ++c) y[c] += row[c];
      }
      for (auto& sum : y) sum *= detail::factor_of(As, n);
    });
  }
  static void backward(auto& at) {
    auto d = std::array<float, Width>{};
    at.each_row([&](std::size_t r, std::size_t first, std::size_t n) {
      if (n == 0) return;
      for (std::size_t c = 0; c < Width; ++c) d[c] = detail::factor_of(As, n) * at.dy()[r * Width + c];
      auto* const rows  = at.rows_of[0];
      auto const shared = rows == nullptr ? 0 : rows->share(d.data());  // one vector for all ids of the bag
      for (std::size_t i = first; i < first + n; ++i)
        if (rows == nullptr) table::add(at, at.x()[i], d.data());
        else table::fetch_gradient(at, i), rows->add_shared(static_cast<std::size_t>(at.x()[i]), shared);
    });
  }
};

/// y = x + a trained vector for each step of a sequence.
///
/// x, y      (B, T, Width), T at most Steps; T may be ragged
/// places    (Steps, Width), uniform between -0.05 and 0.05
/// throws    BadArgument when a row of a ragged value is longer than the table
/// source    Gehring et al., "Convolutional Sequence to Sequence Learning", ICML 2017; GPT-2
template <int Steps, int Width> struct Positions : Layer<Positions<Steps, Width>> {
  using Layer<Positions>::Layer;
  static constexpr std::string_view name = "positions";
  static constexpr bool keeps_x = false, reads_lengths = true;

  template <class X> static constexpr void check() {
    static_assert(std::is_same_v<typename X::type, float> && X::rank == 2 && X::back == Width && X::vectors <= Steps,
                  "chorale: Positions<steps, width> takes sequences (B, T, width) of at most that many steps");
  }
  template <int T> requires(T <= Steps) static constexpr auto output(Of<float, T, Width> x) { return x; }
  static constexpr auto variables(auto) { return std::array{table("places", Steps, Width)}; }

  static void forward(auto& at) {
    for (std::size_t r = 0; r < at.lengths().size(); ++r)
      if (auto const n = at.lengths()[r]; n > Steps)
        throw BadArgument{
            "row " + std::to_string(r) + " of the batch has " + std::to_string(n) +
                " positions, but nn::Positions has vectors for " + std::to_string(Steps) + ".",
            "nn::Positions<" + std::to_string(n) + ", " + std::to_string(Width) + ">, or a map that shortens rows."};
    at.each_row([&](std::size_t, std::size_t first, std::size_t n) {
      auto const x = at.x().subspan(first * Width, n * Width);
      for (std::size_t i = 0; i < x.size(); ++i) at.y()[first * Width + i] = x[i] + at.v[0][i];
    });
  }
  static void backward(auto& at) {
    at.each_row([&](std::size_t, std::size_t first, std::size_t n) {
      for (std::size_t i = 0; i < n * Width; ++i) at.dv[0][i] += at.dy()[first * Width + i];
    });
    for (std::size_t i = 0; i < at.dx().size(); ++i) at.dx()[i] += at.dy()[i];
  }

  template <class D> static void queue_forward(auto& at) {
    Kernels<D>::add_to_rows(at.rows, of_row<decltype(at)>, at.x().data(), at.v[0].data(), at.y().data());
  }
  template <class D> static void queue_backward(auto& at) {
    Kernels<D>::add_to_rows_back(at.rows, of_row<decltype(at)>, at.dy().data(), at.dv[0].data(), at.dx().data());
  }

 private:
  template <class At> static constexpr std::size_t of_row = std::remove_cvref_t<At>::X::size;
};

}  // namespace chorale::nn
