// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu_threads.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::nn {

/// The threads of a Cpu and the gradients of the slices that they compute. All executors of one instance share them.
class SliceThreads {
 public:
  /// gradients    of slice 0; the other slices have their own memory
  SliceThreads(Cpu const& device, int n, Gradients const& gradients)
      : threads_{device, n}, finals_(static_cast<std::size_t>(n)), sums_(static_cast<std::size_t>(n)) {
    gradients_.push_back(gradients.values);
    for (int i = 1; i < n; ++i) {
      memory_.push_back(device.allocate(gradients.values.size_bytes()));
      gradients_.push_back({reinterpret_cast<float*>(memory_.back().data()), gradients.values.size()});
    }
  }

  Cpu::Threads& threads() { return threads_; }
  Span<float> gradients(int slice) const { return gradients_[static_cast<std::size_t>(slice)]; }

  /// Adds the gradients in `range` of all other slices to those of slice 0, in the order of slices.
  void add_up(Range range) const {
    float* const to = gradients_[0].data();
    for (std::size_t i = 1; i < static_cast<std::size_t>(threads_.taking_part()); ++i) {
      float const* const from = gradients_[i].data();
      for (auto k = range.begin; k < range.end; ++k) to[k] += from[k];
    }
  }

  /// Resets the reports, before a run in which slices report or await final gradients.
  void begin() {
    for (auto& end : finals_) end = 0;
  }
  /// Reports that the gradients of a slice below `end` are final.
  void report(int slice, std::size_t end) {
    finals_[static_cast<std::size_t>(slice)].store(end, std::memory_order_release);
    threads_.announce();
  }
  /// Waits until all slices but slice 0 have reported this end, or a larger one.
  void await(std::size_t end) {
    threads_.wait([&] {
      for (std::size_t i = 1; i < static_cast<std::size_t>(threads_.taking_part()); ++i)
        if (finals_[i].load(std::memory_order_acquire) < end) return false;
      return true;
    });
  }

  /// Replaces the numbers of each slice by their sum over all slices, in the order of slices, which `outer` then adds
  /// up over replicas, if it is set. Every slice calls it.
  void join(int slice, Span<double> numbers, Together const& outer) {
    sums_[static_cast<std::size_t>(slice)] = numbers;
    threads_.barrier();
    if (slice == 0) {
      for (std::size_t i = 1; i < static_cast<std::size_t>(threads_.taking_part()); ++i)
        for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] += sums_[i][k];
      outer(numbers);
      omp_set_num_threads(1);                                              // a virtual rank may have run meanwhile
    }
    threads_.barrier();
    if (slice != 0) std::copy(sums_[0].begin(), sums_[0].end(), numbers.begin());
    threads_.barrier();                                                    // now slice 0 may change its numbers
  }

 private:
  Cpu::Threads threads_;
  std::vector<Cpu::block> memory_;
  std::vector<Span<float>> gradients_;
  std::vector<std::atomic<std::size_t>> finals_;
  std::vector<Span<double>> sums_;
};

/// An executor that computes a batch in slices of rows, one on each thread of a Cpu: the threads wait for one another
/// once after forward and once after backward, not in each layer.
///
///   thread 0    rows  0 .. 31   forward | loss | backward | adds up half of the gradients
///   thread 1    rows 32 .. 63   forward |      | backward | adds up the other half
///
/// keeps   the interface of Executor. Layers that need all rows of the share add up over the slices (Pass::share)
/// cost    gradients for each slice but the first, and their sum. If that would cost more than it saves, with many
///         variables and few rows, all threads compute each layer together, with OpenMP
/// order   gradients are added up in the order of slices: the same bits for the same number of threads
template <class Net>
class SlicedExecutor {
  static constexpr auto const& plan      = Net::plan;
  static constexpr std::size_t width_in  = Net::input::size, width_out = Net::output::size;
  static constexpr std::size_t least     = 4;                              // rows of a slice

 public:
  /// rows      of every batch that this executor takes, at least 1
  /// threads   made when first needed
  SlicedExecutor(Cpu const& device, int rows, Variables const& variables, Gradients const& gradients,
                 std::unique_ptr<SliceThreads>& threads)
      : rows_{rows} {
    if (device.threads() == 1 || !suits(rows)) {
      slices_.push_back(std::make_unique<Executor<Cpu, Net>>(device, rows, variables, gradients));
      return;
    }
    if (!threads) threads = std::make_unique<SliceThreads>(device, device.threads(), gradients);
    threads_         = threads.get();
    auto const n     = std::clamp(rows / static_cast<int>(least), 1, device.threads());
    auto const alone = Cpu::OneThread{};
    for (int i = 0; i < n; ++i) {
      auto own   = gradients;
      own.values = threads_->gradients(i);
      parts_.push_back({this, share(static_cast<std::size_t>(rows), i, n), {}, i});
      slices_.push_back(std::make_unique<Executor<Cpu, Net>>(device, static_cast<int>(parts_.back().rows.size()),
                                                             variables, own));
    }
    output_.resize(static_cast<std::size_t>(rows) * width_out);
    d_output_.resize(output_.size());
  }
  SlicedExecutor(SlicedExecutor const&)            = delete;               // passes hold the addresses of its parts
  SlicedExecutor& operator=(SlicedExecutor const&) = delete;

  int rows() const { return rows_; }

  /// Sets the input of the next pass: (rows, Input). Read again by backward, so it must live until then.
  void read(float const* x) {
    if (threads_ == nullptr) return slices_[0]->read(x);
    for (auto const& part : parts_) slice(part).read(x + part.rows.begin * width_in);
  }

  void forward(Pass const& pass) {
    if (threads_ == nullptr) return slices_[0]->forward(pass);
    each_slice([&](Part& part) {
      slice(part).forward(pass_of(part, pass));
      std::copy_n(slice(part).output(), part.rows.size() * width_out, output_.data() + part.rows.begin * width_out);
    });
  }

  void settle() {}

  /// Outputs of the network: (rows, Output).
  float const* output() const { return threads_ == nullptr ? slices_[0]->output() : output_.data(); }
  /// Gradient of the loss by the outputs: (rows, Output). To be written before backward.
  float* d_output() { return threads_ == nullptr ? slices_[0]->d_output() : d_output_.data(); }

  static void take_part(Together const& together, std::vector<double>& zeros) {
    Executor<Cpu, Net>::take_part(together, zeros);
  }

  /// ready     called on the calling thread with an end: gradients below it are final
  /// at_end    true: one call of `ready`, at the end, is enough
  template <class Ready>
  void backward(Pass const& pass, Ready&& ready, bool at_end) {
    if (threads_ == nullptr) return slices_[0]->backward(pass, ready);
    auto final_end = plan::header;                                         // of slice 0
    auto const all = Range{final_end, plan.elements - plan::trailer};
    threads_->begin();
    each_slice([&](Part& part) {
      std::copy_n(d_output_.data() + part.rows.begin * width_out, part.rows.size() * width_out,
                  slice(part).d_output());
      slice(part).backward(pass_of(part, pass), [&](std::size_t end) {
        if (at_end) return;
        if (part.slice > 0) return threads_->report(part.slice, end);
        threads_->await(end);
        threads_->add_up({std::exchange(final_end, end), end});
        ready(end);
      });
      if (!at_end) return;
      threads_->threads().barrier();
      auto const own = share(all.size(), part.slice, static_cast<int>(parts_.size()));
      threads_->add_up({all.begin + own.begin, all.begin + own.end});
    });
    if (at_end) ready(all.end);
  }

 private:
  struct Part {
    SlicedExecutor* of;
    Range rows;
    Together outer;
    int slice;
  };

  /// True if adding up the gradients of slices takes little time, compared with computing them.
  static bool suits(int rows) {
    return plan.elements <= (std::size_t{1} << 20) ||
           plan.products_per_row * static_cast<std::size_t>(rows) >= 512 * plan.elements;
  }

  Executor<Cpu, Net>& slice(Part const& part) const { return *slices_[static_cast<std::size_t>(part.slice)]; }

  template <class F>
  void each_slice(F const& f) {
    threads_->threads().run(static_cast<int>(parts_.size()),
                            [&](int i) { f(parts_[static_cast<std::size_t>(i)]); });
  }

  static Pass pass_of(Part& part, Pass pass) {
    part.outer = pass.together;
    pass.now.first_row += part.rows.begin;
    pass.together = {[](void* of, Span<double> sums) {
                       auto& self = *static_cast<Part*>(of);
                       self.of->threads_->join(self.slice, sums, self.outer);
                     }, &part};
    pass.share    = {[](void* of, Span<double> sums) {
                       auto& self = *static_cast<Part*>(of);
                       self.of->threads_->join(self.slice, sums, {});
                     }, &part};
    return pass;
  }

  int rows_;
  SliceThreads* threads_ = nullptr;                                        // null: one executor, of all rows
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<Executor<Cpu, Net>>> slices_;
  std::vector<float> output_, d_output_;
};

namespace detail {

/// The executor of a network on a device.
template <class D, class Net>
struct ExecutorOn {
  using type = Executor<D, Net>;
};
template <class Net>
struct ExecutorOn<Cpu, Net> {
  using type = SlicedExecutor<Net>;
};

}  // namespace detail
}  // namespace chorale::nn
