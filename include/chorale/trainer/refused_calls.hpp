// SPDX-License-Identifier: Apache-2.0
//
// The sentences of fit, evaluate and predict for arguments that they do not take. Each is the only error of the program.
#pragma once

#include <chorale/data/elements.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/typed_rows.hpp>
#include <chorale/model/model.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/trainer/callback_list.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace chorale::detail {

/// Datasets of batches that model M learns from, and that it predicts from.
template <class Data, class M> concept TrainsModel = Dataset<Data> && LearnsFrom<M, typename Data::element>;
template <class Data, class M> concept AsksModel   = Dataset<Data> && PredictsFrom<M, typename Data::element>;

template <class B> inline constexpr bool is_basic_batch                            = false;
template <class X, class Y> inline constexpr bool is_basic_batch<BasicBatch<X, Y>> = true;

/// The numbers and the targets of a batch; void if it has none.
template <class B> struct NumbersOfBatch {
  using x = void;
  using y = void;
};
template <class X, class Y> struct NumbersOfBatch<BasicBatch<X, Y>> {
  using x = X;
  using y = Y;
};
template <class M> struct NumbersTaken : NumbersOfBatch<void> {};
template <class M> requires requires { typename M::batch; } struct NumbersTaken<M> : NumbersOfBatch<typename M::batch> {
};

/// Datasets whose batches differ from a model's only in the type of their labels: int, and another integer.
template <class Data, class M>
concept HasOtherLabels =
    Dataset<Data> && std::same_as<typename NumbersTaken<M>::y, int> &&
    std::same_as<typename NumbersTaken<M>::x, typename NumbersOfBatch<typename Data::element>::x> &&
    std::integral<typename NumbersOfBatch<typename Data::element>::y>;

/// Refuses what is not a dataset: it names the member that is missing.
template <class Data> constexpr void refuse_dataset() {
  constexpr bool known   = std::is_same_v<Data, data::RefusedData>;  // its sentence was the first error
  constexpr bool numbers = requires(Data const& data) {
    data.begin();
    data.size();
  };
  constexpr bool element = requires { typename Data::element; };
  static_assert(!numbers || element,
                "chorale: fit, evaluate and predict take a dataset, not a vector. Write data::from_tensors(x, y, "
                "width).batch(64), where width is the numbers of x in a row");
  static_assert(numbers || element || known,
                "chorale: the data argument is not a Dataset: it has no element. Write using element = "
                "BasicBatch<float, int>, the batches that it gives. See Dataset in data/pipe.hpp");
  if constexpr (element) {
    using Element         = typename Data::element;
    constexpr bool stream = requires(Data const& data, std::size_t epoch) { data.stream(epoch); };
    constexpr bool next   = requires(Data const& data, std::size_t epoch, Element& to) {
      { data.stream(epoch).next(to) } -> std::same_as<bool>;
    };
    constexpr bool size = requires(Data const& data) {
      { data.size() } -> std::same_as<std::optional<std::size_t>>;
    };
    static_assert(stream,
                  "chorale: the data argument is not a Dataset: it has no stream. Write auto "
                  "stream(std::size_t epoch) const, one pass, which has bool next(element& to). See Dataset in "
                  "data/pipe.hpp");
    static_assert(!stream || next,
                  "chorale: the data argument is not a Dataset: its stream has no next. Write bool "
                  "next(element& to), which is false at the end. See Dataset in data/pipe.hpp");
    static_assert(!stream || !next || size,
                  "chorale: the data argument is not a Dataset: it has no size. Write std::optional<std::size_t> "
                  "size() const, the batches of a pass, or {} if that is not known. See Dataset in data/pipe.hpp");
    static_assert(!stream || !next || !size || std::copy_constructible<Data>,
                  "chorale: the data argument is not a Dataset: it cannot be copied. A dataset is a recipe, and its "
                  "stream has what one pass needs. See Dataset in data/pipe.hpp");
  }
}

/// Refuses a dataset whose elements are not the batches that a model takes.
template <class M, class Data> constexpr void refuse_batches() {
  if constexpr (!Dataset<Data>) {
    refuse_dataset<Data>();
  } else if constexpr (requires { M::template refuse<typename Data::element>(); }) {
    M::template refuse<typename Data::element>();
  } else {
    using Element          = typename Data::element;
    using Taken            = NumbersTaken<M>;
    using Given            = NumbersOfBatch<Element>;
    constexpr bool compare = is_basic_batch<Element> && !std::is_void_v<typename Taken::x>;
    constexpr bool same_x  = std::is_same_v<typename Taken::x, typename Given::x>;
    constexpr bool bytes   = compare && std::is_same_v<typename Given::x, std::uint8_t>;
    static_assert(!data::is_row<Element>,
                  "chorale: the elements of this dataset are not the batches that the model "
                  "takes, but single rows. End the dataset with .batch(n)");
    static_assert(!compare || same_x || !bytes,
                  "chorale: the rows of this dataset are bytes, and the model takes float. Put .map(data::scale) "
                  "before .batch(n)");
    static_assert(!compare || same_x || bytes,
                  "chorale: the rows of this dataset are not of float, which the model takes. Give from_tensors a "
                  "std::vector<float>, or make them by .map<float, int>(f) before .batch(n)");
    static_assert(!compare || !same_x || !std::is_integral_v<typename Given::y>,
                  "chorale: the targets of this dataset are integers, and the loss takes float. For labels of classes "
                  "use loss::SparseCrossEntropy; for numbers give from_tensors a std::vector<float>, or write "
                  ".map<float, float>(f)");
    static_assert(!compare || !same_x || std::is_integral_v<typename Given::y>,
                  "chorale: the targets of this dataset are numbers, and the loss takes labels, one int for each row. "
                  "Use loss::MeanSquaredError or loss::CrossEntropy, or give from_tensors a std::vector<int>");
    static_assert(compare || data::is_row<Element>,
                  "chorale: the elements of this dataset are not the batches that the model takes, Model::batch. "
                  "Let map<X, Y>() make rows of its numbers, and end the dataset with .batch(n)");
  }
}

/// True if T is a callback or a sink, or a std::optional of one.
template <class T, class Trainer>
inline constexpr bool is_callback = Sink<typename NotOptional<std::remove_cvref_t<T>>::type> ||
                                    Callback<typename NotOptional<std::remove_cvref_t<T>>::type, Trainer>;

/// Refuses the second argument of fit, if it is neither options nor a callback.
template <class Second> constexpr void refuse_second() {
  using T                 = std::remove_cvref_t<Second>;
  constexpr bool is_count = std::is_arithmetic_v<T>, is_data = Dataset<T>;
  constexpr bool is_range = requires(T const& t) {
    t.begin();
    t.end();
  };
  static_assert(!is_count, "chorale: fit takes its number of epochs as an option: trainer.fit(train, {.epochs = 3})");
  static_assert(!is_data,
                "chorale: fit trains on one dataset. One to validate on is a callback: trainer.fit(train, "
                "{.epochs = 3}, validate_on(test))");
  static_assert(is_data || !is_range,
                "chorale: fit takes a dataset that has rows and targets, not two vectors. Write "
                "data::from_tensors(x, y, width).batch(64)");
  static_assert(is_count || is_data || is_range,
                "chorale: the second argument of fit is neither FitOptions, a callback nor a sink: trainer.fit(train, "
                "{.epochs = 3}, callbacks...). See docs/48-observe.md");
}

/// Refuses a second argument of evaluate or predict.
template <class Data> constexpr void refuse_more() {
  static_assert(sizeof(Data) == 0,
                "chorale: evaluate and predict take one dataset that has rows and targets, and "
                "nothing else. Write data::from_tensors(x, y, width).batch(64)");
}

/// Refuses a call of a trainer that is const.
template <class Data> constexpr void refuse_const() {
  static_assert(sizeof(Data) == 0,
                "chorale: this trainer is const, and fit, evaluate and predict change what it "
                "holds. Write auto trainer = Trainer{...}; a callback with chief_only cannot call "
                "them");
}

}  // namespace chorale::detail
