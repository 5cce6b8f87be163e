// SPDX-License-Identifier: Apache-2.0
//
// A source of rows that are easy to recognise, and what reads a whole pass.
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/dataset.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sources {

using namespace chorale;

/// Row i is x = {i, -i}, y = {i}. All rows of a stream use the same memory, so that a view which is kept too long shows
/// another row.
class Counting : public data::Pipe<Counting> {
 public:
  using element                = Sample<float, int>;
  static constexpr bool stable = false;
  static constexpr auto never  = static_cast<std::size_t>(-1);

  /// fails_at    the row that throws instead
  explicit Counting(std::size_t n, std::size_t fails_at = never) : n_{n}, fails_at_{fails_at} {}

  class Stream {
   public:
    Stream(std::size_t n, std::size_t fails_at, std::shared_ptr<std::atomic<std::size_t>> reads)
        : n_{n}, fails_at_{fails_at}, reads_{std::move(reads)} {}
    bool next(element& out) {
      if (at_ == n_) return false;
      if (at_ == fails_at_) throw std::runtime_error{"row " + std::to_string(at_) + " is broken"};
      ++*reads_;
      x_  = {static_cast<float>(at_), -static_cast<float>(at_)};
      y_  = {static_cast<int>(at_)};
      out = {x_, y_};
      ++at_;
      return true;
    }

   private:
    std::size_t n_, fails_at_, at_ = 0;
    std::vector<float> x_;
    std::vector<int> y_;
    std::shared_ptr<std::atomic<std::size_t>> reads_;
  };

  Stream stream(std::size_t) const { return {n_, fails_at_, reads_}; }
  std::optional<std::size_t> size() const { return n_; }

  /// Rows that all streams of all copies have made.
  std::size_t reads() const { return *reads_; }

 private:
  std::size_t n_, fails_at_;
  std::shared_ptr<std::atomic<std::size_t>> reads_ = std::make_shared<std::atomic<std::size_t>>(0);
};

static_assert(Dataset<Counting>);

/// Whether the elements of a dataset stay where they are; for decltype of a variable.
template <class D> inline constexpr bool is_stable = Stable<std::remove_cv_t<D>>;

/// The targets of one pass, in order; throws when a row's x does not belong to its y.
template <Dataset D> std::vector<int> targets(D const& dataset, std::size_t epoch = 0) {
  auto stream = dataset.stream(epoch);
  auto all    = std::vector<int>{};
  for (typename D::element e; stream.next(e);) {
    auto const width = e.y.empty() ? 0 : e.x.size() / e.y.size();
    for (std::size_t i = 0; i < e.y.size(); ++i) {
      if (e.x[i * width] != static_cast<float>(e.y[i])) throw std::logic_error{"x and y of different rows"};
      all.push_back(e.y[i]);
    }
  }
  return all;
}

/// 0, 1, …, n - 1.
inline std::vector<int> in_order(int n) {
  auto all = std::vector<int>{};
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

}  // namespace sources
