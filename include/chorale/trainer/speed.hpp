// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/model/work.hpp>

#include <optional>
#include <string_view>

namespace chorale {

/// How fast the steps of an epoch were.
struct Speed {
  CountedAs counted{};                    // what amount counts
  double amount  = 0;                     // images, tokens or rows, of all replicas
  double seconds = 0;                     // without the time that measures the machine
  std::optional<double> floor_seconds{};  // least time on this machine: StepFloor

  /// Images, tokens or rows in a second.
  double per_second() const { return seconds > 0 ? amount / seconds : 0; }

  /// The least time over the time, in percent: 100 is a machine that only multiplies, or only moves bytes.
  std::optional<double> percent_of_floor() const {
    if (!floor_seconds || seconds <= 0) return {};
    return 100 * *floor_seconds / seconds;
  }

  /// Value of "images_per_second" or what else this counts, or of "percent_of_floor"; nothing for another name.
  ///
  /// throws  BadArgument when percent_of_floor was not measured
  std::optional<double> find(std::string_view name) const {
    if (name == counted.scalar) return per_second();
    if (name != "percent_of_floor") return {};
    if (auto const percent = percent_of_floor()) return percent;
    throw BadArgument{"percent_of_floor is asked for, but fit does not measure it.", "FitOptions::floor."};
  }
};

}  // namespace chorale
