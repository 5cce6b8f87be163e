// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/data/pipe.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

namespace chorale::data {

inline auto validation_split(RefusedData, double) { return std::pair{RefusedData{}, RefusedData{}}; }

/// The first rows of a dataset, to train with, and its last rows, to validate with.
///
///   auto const [train, validation] = data::validation_split(data::csv("iris.csv", "species"), 0.2);
///   trainer.fit(train.shuffle(1'000).batch(32), {.epochs = 12}, validate_on(validation.batch(32)));
///
/// part    of all rows that are for validation, above 0 and below 1; of n rows the first floor(n (1 - part)) train
/// keeps   the order of the rows, which has to be the same in every epoch: for a file that is sorted by its labels put
///         shuffle(n, seed).cache() before, or shuffle(n, seed, Order::fixed). With neither it does not compile: each
///         epoch would have another order, and train with rows that validate. User-defined datasets are not checked
/// throws  BadArgument when the number of rows is not known, when one of the two would be empty, or after
///         Interleave::shuffle or Order::any of a map
/// source  keras.Model.fit(validation_split)
template <Dataset Rows> auto validation_split(Rows const& rows, double part) {
  if constexpr (detail::reorders<Rows>) {
    static_assert(!detail::reorders<Rows>,
                  "chorale: validation_split takes rows whose order is the same in every epoch, "
                  "and shuffle gives each epoch another one, so that rows would train and "
                  "validate. Write shuffle(n, seed, Order::fixed), or put cache() behind it: "
                  "rows.shuffle(n, seed).cache()");
    return std::pair{RefusedData{}, RefusedData{}};
  } else if constexpr (detail::repeats<Rows>) {
    static_assert(!detail::repeats<Rows>,
                  "chorale: validation_split takes rows that come once, and repeat gives each "
                  "row several times, so that rows would train and validate. Put repeat behind "
                  "it");
    return std::pair{RefusedData{}, RefusedData{}};
  } else {
    detail::expect_one_order(!detail::reorders_by_option(rows));
    auto const size = rows.size();
    CHORALE_EXPECTS(size.has_value(),
                    "validation_split needs a dataset whose number of rows is known: put cache() "
                    "before it");
    auto const first = part > 0 && part < 1 ? std::floor(static_cast<double>(*size) * (1.0 - part)) : 0.0;
    auto const train = static_cast<std::size_t>(first);
    CHORALE_EXPECTS(train > 0 && train < *size, "validation_split of " + std::to_string(*size) +
                                                    " rows takes a part above 0 and below 1 that leaves "
                                                    "rows for both, got " +
                                                    number_text(part));
    return std::pair{rows.take(train), rows.skip(train)};
  }
}

}  // namespace chorale::data
