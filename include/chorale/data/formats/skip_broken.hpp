// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/data/stages/map.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace chorale::data {

/// The number of records and rests of files left out because of damage. Any thread may use it.
class Skipped {
 public:
  std::size_t records() const { return records_; }  // with a wrong checksum, or that a map cannot read
  std::size_t rests() const { return rests_; }      // rests of files: after a damaged length, or cut
  std::string first() const {                       // the first error message
    auto const lock = std::lock_guard{mutex_};
    return first_;
  }

  void record(BadFile const& why) { ++records_, note(why); }
  void rest(BadFile const& why) { ++rests_, note(why); }

 private:
  void note(BadFile const& why) {
    auto const lock = std::lock_guard{mutex_};
    if (first_.empty()) first_ = why.what();
  }

  std::atomic<std::size_t> records_{0}, rests_{0};
  mutable std::mutex mutex_;
  std::string first_;
};

/// The function of map that skip_broken makes.
template <class F> struct SkipBroken {
  F f;
  std::shared_ptr<Skipped> skipped;

  template <class Row, class X, class Y> requires CallableByMap<F, Row, X, Y>
  bool operator()(Row const& row, std::vector<X>& x, std::vector<Y>& y, Place at) {
    return make(row, at, x, y);
  }
  template <class Row, class... Fields> requires CallableWith<F, Row, NewRow<Fields...>>
  bool operator()(Row const& row, NewRow<Fields...>& to, Place at) {
    return make(row, at, to);
  }

 private:
  template <class Row, class... To> bool make(Row const& row, Place at, To&... to) {
    try {
      return detail::make_row(f, row, at, to...);
    } catch (BadFile const& why) {
      skipped->record(why);
      return false;
    }
  }
};

/// Makes a function of map that leaves out, and counts, rows for which f throws BadFile. Without it, the first such row
/// ends the pass.
///
///   auto skipped = std::make_shared<data::Skipped>();
///   auto images  = records.map(data::skip_broken(decode, skipped), {.threads = 4});
///
/// order   the other rows keep their Place, and with it their random numbers
template <class F> SkipBroken<F> skip_broken(F f, std::shared_ptr<Skipped> skipped) {
  return {std::move(f), std::move(skipped)};
}

}  // namespace chorale::data
