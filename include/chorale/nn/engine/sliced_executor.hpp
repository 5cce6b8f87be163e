// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu_threads.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::nn {

/// The threads of a Cpu and the gradients of the slices that they compute. All executors of one instance share them.
class SliceThreads {
 public:
  /// gradients    of slice 0, and tables, the gradients that are rows; the other slices have their own memory
  SliceThreads(Cpu const& device, int n, PlanView const& plan, Span<float> gradients, Span<RowGradients> tables = {})
      : threads_{std::make_shared<Cpu::Threads>(device, n)}, finals_(static_cast<std::size_t>(n)),
        sums_(static_cast<std::size_t>(n)) {
    gradients_.push_back(gradients);
    tables_.push_back(tables);
    for (int i = 1; i < n; ++i) {
      memory_.push_back(device.allocate(gradients.size_bytes()));
      gradients_.push_back({reinterpret_cast<float*>(memory_.back().data()), gradients.size()});
      own_tables_.push_back(row_gradients_of(plan));
      tables_.push_back(own_tables_.back());
    }
  }

  /// Calls f(slice) for each slice below n, each on its thread.
  template <class F> void run(int n, F const& f) {
    taking_part_ = n;
    Cpu::Threads::lend(threads_);
    threads_->run(n, f);
  }
  void barrier() { threads_->barrier(); }
  Span<float> gradients(int slice) const { return gradients_[static_cast<std::size_t>(slice)]; }
  Span<RowGradients> tables(int slice) const { return tables_[static_cast<std::size_t>(slice)]; }

  /// Sets the gradients of a slice to zero: of all slices but slice 0, whose are zeros when a step begins.
  void clear(int slice) const {
    if (slice == 0) return;
    std::ranges::fill(gradients(slice), 0.0F);
    for (auto& table : tables(slice)) table.clear();
  }
  /// Adds the rows of all other slices to the rows of slice 0, in the order of slices.
  void add_up_tables() const {
    for (int i = 1; i < taking_part_; ++i)
      for (std::size_t t = 0; t < tables_[0].size(); ++t) tables_[0][t].add(tables(i)[t].view());
  }

  /// Adds the gradients in `range` of all other slices to the gradients of slice 0, in the order of slices.
  void add_up(Range range) const {
    float* const to = gradients_[0].data();
    for (std::size_t i = 1; i < static_cast<std::size_t>(taking_part_); ++i) {
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
    threads_->announce();
  }
  /// Waits until all slices but slice 0 have reported this end, or a larger one.
  void await(std::size_t end) {
    threads_->wait([&] {
      for (std::size_t i = 1; i < static_cast<std::size_t>(taking_part_); ++i)
        if (finals_[i].load(std::memory_order_acquire) < end) return false;
      return true;
    });
  }

  /// Replaces the numbers of each slice by their sum over all slices, in the order of slices, which `outer` then adds
  /// up over replicas, if it is set. Every slice calls it.
  void join(int slice, Span<double> numbers, Together const& outer) {
    sums_[static_cast<std::size_t>(slice)] = numbers;
    threads_->barrier();
    if (slice == 0) {
      for (std::size_t i = 1; i < static_cast<std::size_t>(taking_part_); ++i)
        for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] += sums_[i][k];
      outer(numbers);
      omp_set_num_threads(1);  // a virtual rank may have run meanwhile
    }
    threads_->barrier();
    if (slice != 0) std::copy(sums_[0].begin(), sums_[0].end(), numbers.begin());
    threads_->barrier();  // now slice 0 may change its numbers
  }

 private:
  std::shared_ptr<Cpu::Threads> threads_;
  int taking_part_ = 0;  // in this run, or in the last one
  std::vector<Cpu::block> memory_;
  std::vector<Span<float>> gradients_;
  std::vector<std::vector<RowGradients>> own_tables_;
  std::vector<Span<RowGradients>> tables_;
  std::vector<std::atomic<std::size_t>> finals_;
  std::vector<Span<double>> sums_;
};

/// An executor that computes a batch in slices of rows, one on each thread of a Cpu: the threads wait for one another
/// once after forward and once after backward, not in each layer.
///
///   thread 0    rows  0 .. 31   forward | loss | backward | adds up half of the gradients
///   thread 1    rows 32 .. 63   forward |      | backward | adds up the other half
///
/// Net     a traced network
/// keeps   the interface of GraphExecutor. Layers that need all rows of the share add up over the slices (Pass::share)
/// cost    gradients for each slice but the first, and their sum. If that would cost more than it saves, with many
///         variables and few rows, all threads compute each layer together, with OpenMP
/// order   gradients are added up in the order of slices: the same bits for the same number of threads
template <class Net> class SlicedExecutor {
  using One                         = GraphExecutor<Net, Cpu>;
  static constexpr auto const& plan = One::plan;
  static constexpr bool is_list     = requires { typename Net::sequential; };

  // A thread computes at least so many rows, and so many multiplications for each gradient that is added up.
  static constexpr int least          = !is_list && plan.products_per_row >= (std::size_t{1} << 20) ? 1 : 4;
  static constexpr std::size_t enough = is_list ? 512 : 128;

 public:
  using Rooms       = typename One::Rooms;
  using Overwritten = typename One::Overwritten;

  static constexpr std::size_t num_inputs = One::num_inputs, num_outputs = One::num_outputs;
  static constexpr std::size_t width(std::size_t o) { return One::width(o); }
  static constexpr int ragged_of(std::size_t) { return -1; }  // rows have one shape

  /// rows      of every batch that this executor takes, at least 1
  /// variables, gradients, tables, overwritten    see GraphExecutor
  /// threads   made when first needed
  /// units     see GraphExecutor: all threads then compute each layer together, as there is one gradient of each unit
  SlicedExecutor(Cpu const& device, int rows, Span<float> variables, Span<float> gradients, Span<RowGradients> tables,
                 std::unique_ptr<SliceThreads>& threads, Overwritten const& overwritten = {},
                 UnitMemory* units = nullptr)
      : rows_{rows}, overwritten_{overwritten} {
    auto const n = units != nullptr ? 0 : slices_of(device, rows);
    if (n == 0) {
      slices_.push_back(std::make_unique<One>(rows, variables, gradients, tables, device, Rooms{}, overwritten, units));
      return;
    }
    if (!threads) threads = std::make_unique<SliceThreads>(device, device.threads(), plan, gradients, tables);
    threads_         = threads.get();
    auto const alone = Cpu::OneThread{};
    for (int i = 0; i < n; ++i) {
      parts_.push_back({this, share(static_cast<std::size_t>(rows), i, n), {}, i});
      slices_.push_back(std::make_unique<One>(static_cast<int>(parts_.back().rows.size()), variables,
                                              threads_->gradients(i), threads_->tables(i), device, Rooms{},
                                              overwritten));
    }
    for (std::size_t o = 0; o < num_outputs; ++o) {
      output_[o] = device.allocate(bytes_of(rows, width(o)));
      if (!overwritten[o]) d_output_[o] = device.allocate(bytes_of(rows, width(o)));
    }
    for (std::size_t i = 0; i < num_inputs; ++i)
      if (One::asks(i)) d_input_[i] = device.allocate(bytes_of(rows, One::width_in(i)));
  }
  SlicedExecutor(SlicedExecutor const&)            = delete;  // passes hold the addresses of its parts
  SlicedExecutor& operator=(SlicedExecutor const&) = delete;

  /// Bytes that an executor of so many rows allocates, with the gradients of the device's other threads.
  static ShareMemory planned(Cpu const& device, int rows, Overwritten const& overwritten = {}) {
    auto const n = slices_of(device, rows);
    if (n == 0) return {.activations = One::planned_bytes(rows, {}, overwritten)};
    auto const alone = Cpu::OneThread{};
    auto sum         = ShareMemory{.gradients = static_cast<std::size_t>(device.threads() - 1) * plan.bytes_per_step()};
    for (int i = 0; i < n; ++i)
      sum.activations +=
          One::planned_bytes(static_cast<int>(share(static_cast<std::size_t>(rows), i, n).size()), {}, overwritten);
    for (std::size_t o = 0; o < num_outputs; ++o)
      sum.activations += (overwritten[o] ? 1 : 2) * bytes_of(rows, width(o));
    for (std::size_t i = 0; i < num_inputs; ++i)
      if (One::asks(i)) sum.activations += bytes_of(rows, One::width_in(i));
    return sum;
  }

  int rows() const { return rows_; }
  std::size_t size(std::size_t o) const { return static_cast<std::size_t>(rows_) * width(o); }
  bool has_room(Rooms const&) const { return true; }
  auto const& ragged(std::size_t i) const { return slices_[0]->ragged(i); }

  /// Sets input i of the next pass: (rows, field). Read again by backward, so it must live until then.
  void read(std::size_t i, void const* x) {
    if (threads_ == nullptr) return slices_[0]->read(i, x);
    for (auto const& part : parts_)
      slice(part).read(i, static_cast<std::byte const*>(x) + part.rows.begin * One::bytes_in(i));
  }

  void forward(Pass const& pass) {
    if (threads_ == nullptr) return slices_[0]->forward(pass);
    each_slice([&](Part& part) {
      if (!is_list && pass.training) threads_->clear(part.slice);  // forward may write what statistics move to
      slice(part).forward(pass_of(part, pass));
      for (std::size_t o = 0; o < num_outputs; ++o) copy(part, width(o), slice(part).output(o), output_[o]);
    });
  }

  void settle() {}

  /// Output o: (rows, width(o)).
  float const* output(std::size_t o) const { return threads_ == nullptr ? slices_[0]->output(o) : numbers(output_[o]); }
  /// Gradient of the loss by output o: (rows, width(o)). To be written before backward.
  float* d_output(std::size_t o) { return threads_ == nullptr ? slices_[0]->d_output(o) : own_d_output(o); }
  /// Gradient of the loss by input i, which is Differentiable: (rows, field), after backward. Null if no output depends
  /// on it.
  float const* d_input(std::size_t i) const {
    auto const* const d = slices_[0]->d_input(i);
    return threads_ == nullptr || d == nullptr ? d : numbers(d_input_[i]);
  }

  static void take_part(Together const& together, Span<char const> frozen, std::vector<double>& zeros) {
    One::take_part(together, frozen, zeros);
  }

  /// ready     called on the calling thread with an end: gradients below it are final
  /// at_end    true: one call of `ready`, at the end, is enough
  template <class Ready> void backward(Pass const& pass, Ready&& ready, bool at_end) {
    if (threads_ == nullptr) return slices_[0]->backward(pass, ready);
    auto final_end = plan::header;  // of slice 0
    auto const all = Range{final_end, plan.elements - plan::trailer};
    threads_->begin();
    each_slice([&](Part& part) {
      copy_d_outputs(part);
      slice(part).backward(pass_of(part, pass), [&](std::size_t end) {
        if (at_end) return;
        if (part.slice > 0) return threads_->report(part.slice, end);
        threads_->await(end);
        threads_->add_up({std::exchange(final_end, end), end});
        ready(end);
      });
      copy_d_inputs(part);
      if (!at_end) return;
      threads_->barrier();
      auto const own = share(all.size(), part.slice, static_cast<int>(parts_.size()));
      threads_->add_up({all.begin + own.begin, all.begin + own.end});
    });
    threads_->add_up_tables();
    if (at_end) ready(all.end);
  }

  /// Computes gradients of inputs alone: see GraphExecutor.
  void backward_to_inputs(Pass const& pass) {
    if (threads_ == nullptr) return slices_[0]->backward_to_inputs(pass);
    each_slice([&](Part& part) {
      copy_d_outputs(part);
      slice(part).backward_to_inputs(pass_of(part, pass));
      copy_d_inputs(part);
    });
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
           plan.products_per_row * static_cast<std::size_t>(rows) >= enough * plan.elements;
  }

  /// Slices of a batch: one for each thread, if each gets rows enough; 0: none, and one executor takes all rows.
  static int slices_of(Cpu const& device, int rows) {
    auto const n = std::clamp(rows / least, 1, device.threads());
    return device.threads() == 1 || !suits(rows) || (n == 1 && !is_list) ? 0 : n;
  }

  static float* numbers(Cpu::block const& of) { return reinterpret_cast<float*>(of.data()); }
  /// Bytes of numbers for each row, in whole cache lines.
  static std::size_t bytes_of(int rows, std::size_t of_a_row) {
    return (static_cast<std::size_t>(rows) * of_a_row * sizeof(float) + 63) / 64 * 64;
  }

  float* own_d_output(std::size_t o) const { return numbers(overwritten_[o] ? output_[o] : d_output_[o]); }
  One& slice(Part const& part) const { return *slices_[static_cast<std::size_t>(part.slice)]; }

  /// Copies the rows of a slice to their place among all rows.
  static void copy(Part const& part, std::size_t width, float const* from, Cpu::block& to) {
    std::copy_n(from, part.rows.size() * width, numbers(to) + part.rows.begin * width);
  }

  void copy_d_outputs(Part const& part) {
    for (std::size_t o = 0; o < num_outputs; ++o)
      std::copy_n(own_d_output(o) + part.rows.begin * width(o), part.rows.size() * width(o), slice(part).d_output(o));
  }
  void copy_d_inputs(Part const& part) {
    for (std::size_t i = 0; i < num_inputs; ++i)
      if (One::asks(i) && slice(part).d_input(i) != nullptr)
        copy(part, One::width_in(i), slice(part).d_input(i), d_input_[i]);
  }

  template <class F> void each_slice(F const& f) {
    threads_->run(static_cast<int>(parts_.size()), [&](int i) { f(parts_[static_cast<std::size_t>(i)]); });
  }

  static Pass pass_of(Part& part, Pass pass) {
    part.outer = pass.together;
    pass.now.first_row += part.rows.begin;
    pass.first_of_share = part.rows.begin;
    pass.together       = {[](void* of, Span<double> sums) {
                       auto& self = *static_cast<Part*>(of);
                       self.of->threads_->join(self.slice, sums, self.outer);
                     },
                           &part};
    pass.share          = {[](void* of, Span<double> sums) {
                    auto& self = *static_cast<Part*>(of);
                    self.of->threads_->join(self.slice, sums, {});
                  },
                           &part};
    return pass;
  }

  int rows_;
  Overwritten overwritten_;
  SliceThreads* threads_ = nullptr;  // null: one executor, of all rows
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<One>> slices_;
  std::array<Cpu::block, num_outputs> output_, d_output_;
  std::array<Cpu::block, num_inputs> d_input_;  // of inputs whose gradient is asked for
};

}  // namespace chorale::nn
