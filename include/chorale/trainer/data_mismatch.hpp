// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/core/error.hpp>

#include <string>

namespace chorale::detail {

/// Refuses a dataset whose elements are not the batches that a model takes. The only error of a call of the trainer that
/// instantiates it.
template <class Model, class Data>
void refuse_batches() {
  if constexpr (requires { Model::template refuse<typename Data::element>(); })
    Model::template refuse<typename Data::element>();
  else
    static_assert(sizeof(Data) == 0,
                  "chorale: the elements of this dataset are not the batches that the model takes, Model::batch. "
                  "Let map<X, Y>() make rows of its numbers, and end the dataset with .batch(n)");
}

/// Calls work(), which every process of a job calls with its own dataset, options and callbacks. If these differ, ranks
/// call operations that do not match: the error then reports how far this process had come.
///
/// place   returns a part of a sentence: "in fit, at batch 20 of epoch 1"
/// throws  what work() throws; a Disagreement about operations with another text, which names the place
template <class Work, class Place>
decltype(auto) with_same_data(Work&& work, Place&& place) {
  try {
    return work();
  } catch (Disagreement const& error) {
    if (error.fault() != Fault::collective_mismatch) throw;
    throw Disagreement{error.fault(),
                       "the processes of this job have different data, options or callbacks: this one was " + place() +
                           " when their operations did not fit together (" + first_line(error) + ")",
                       "a dataset with as many batches of as many rows in every process, and the same FitOptions and "
                       "callbacks."};
  }
}

}  // namespace chorale::detail
