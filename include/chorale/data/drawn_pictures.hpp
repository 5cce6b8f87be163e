// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chorale::data {

/// A dataset of pictures that are drawn as they are read: picture i depends on the seed and on i alone.
///
/// Self      the dataset: `name`, and draw(seed, i, pixels), which returns the label and may write all pixels
/// Pixels    bytes of one picture
template <class Self, std::size_t Pixels> class DrawnPictures : public Pipe<Self> {
 public:
  using element                = Sample<std::uint8_t, std::uint8_t>;
  static constexpr bool stable = false;

  /// n pictures, from number `first` on.
  DrawnPictures(std::size_t n, Seed seed, std::uint64_t first) : n_{n}, seed_{seed}, first_{first} {}

  class Stream {
   public:
    Stream(std::size_t n, Seed seed, std::uint64_t first) : n_{n}, seed_{seed}, first_{first} {}

    bool next(element& out) {
      if (at_ == n_) return false;
      label_ = Self::draw(seed_, first_ + at_++, pixels_);
      out    = {pixels_, {&label_, 1}};
      return true;
    }

   private:
    std::size_t n_;
    Seed seed_;
    std::uint64_t first_;
    std::size_t at_     = 0;
    std::uint8_t label_ = 0;
    std::array<std::uint8_t, Pixels> pixels_{};
  };

  Stream stream(std::size_t) const { return {n_, seed_, first_}; }
  std::optional<std::size_t> size() const { return n_; }

  void describe(std::vector<std::string>& lines) const {
    lines.push_back(std::string{Self::name} + " " + std::to_string(n_) + " seed " + std::to_string(seed_.value) +
                    " from " + std::to_string(first_));
  }

 private:
  std::size_t n_;
  Seed seed_;
  std::uint64_t first_;
};

}  // namespace chorale::data
