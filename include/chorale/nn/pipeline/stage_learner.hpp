// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class: forward, backward and the messages between them share the micro-batches that are under way.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/engine/learner.hpp>
#include <chorale/nn/engine/term_scores.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/pipeline/cut.hpp>
#include <chorale/nn/pipeline/message_numbers.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/pipeline/section_executor.hpp>
#include <chorale/nn/pipeline/stage_executors.hpp>
#include <chorale/nn/pipeline/stage_norm.hpp>
#include <chorale/nn/pipeline/stage_outputs.hpp>
#include <chorale/nn/pipeline/stage_ties.hpp>
#include <chorale/nn/pipeline/stage_variables.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// Refuses a network that no pipeline computes. A function, as clang abandons a class with a failed static_assert.
template <class Net, class D, bool by_rows> constexpr auto check_stages() {
  static_assert(std::is_same_v<D, Cpu>, "chorale: a pipeline computes on Cpu only. Use a strategy over Cpu");
  static_assert(!has_ragged(Traced<Net, NoDevice>::calls),
                "chorale: a pipeline takes rows of one shape. Give the "
                "fields of this network one length");
  static_assert(!has_tables<Net>(),
                "chorale: a pipeline has no gradients that are rows of a table. Write "
                "nn::Embedding<rows, width, nn::DenseGradient>, or use MirroredStrategy");
  static_assert(by_rows,
                "chorale: nn::SyncBatchNorm adds up over all rows of a batch, and a pipeline computes "
                "micro-batches. Use nn::BatchNorm");
  static_assert(has_tables<Net>() || axes_asked(Traced<Net, NoDevice>::calls).empty(),
                "chorale: a layer of this network is split over several ranks along an Axis, and a pipeline computes "
                "each stage on one rank. Use layers that are not split, or MeshStrategy without pipelined<Schedule>()");
}

/// How one stage of a pipeline computes: the Learner of a copy that has the variables of its sections alone.
///
/// keeps     a step allocates nothing once its numbers of rows were seen. One executor for each micro-batch that is
///           under way in a section, as many as the schedule says
/// order     gradients are added up in the order of the schedule; or, for MicroBatchSums, each micro-batch by itself,
///           with the bits that one device has for these rows
template <class Net, class D, class Losses, class Metrics> class StageLearner {
  using Whole   = GraphLearner<Net, D, Losses, Metrics>;
  using Outputs = StageOutputs<Net, D>;
  using Scoring = TermScores<Net, D, Outputs, Losses, Metrics>;
  using Sums    = typename Scoring::Sums;
  using Slot    = typename StageExecutors<D>::Slot;
  using checked = decltype(check_stages<Net, D, Whole::joins_below == 0>());

 public:
  static constexpr Memory memory         = D::memory;
  static constexpr auto metric_names     = Whole::metric_names;
  static constexpr bool counts_positions = Scoring::counts_positions;
  static constexpr auto output_width     = Whole::output_width;
  static constexpr NetworkWork work      = Whole::work;

  /// ends      of the sections, see cut_of
  StageLearner(D device, Losses losses, Metrics metrics, pipelines::StageSchedule schedule, std::vector<int> ends)
      : device_{std::move(device)}, scores_{std::move(losses), std::move(metrics)}, schedule_{std::move(schedule)},
        ends_{std::move(ends)}, norm_{ends_} {
    auto const whole = whole_of<Net, D>();
    whole_schedule_  = std::make_shared<Schedule const>(Scheduler{whole.g, whole.trains}.schedule());
    for (auto const x : schedule_.sections)
      sections_.push_back(std::make_shared<Section const>(whole, *whole_schedule_, ends_, x));
    variables_of_ = stage_variables<Net>(whole, ends_, schedule_);
    ties_         = ties_of(whole, ends_, variables_of_, schedule_);
    numbers_      = MessageNumbers{whole.g, ends_.size(), schedule_.micro_batches};
  }

  pipelines::StageSchedule const& schedule() const { return schedule_; }
  StageVariables const& variables() const { return variables_of_; }
  /// The stage that owns a variable of the network: the one with the first section that uses it.
  int owner_of(std::size_t variable) const {
    return schedule_.stage_of[at(users_of(whole_of<Net, D>(), ends_, static_cast<int>(variable)).front())];
  }

  void initialize(Variables const& variables, Seed seed) const {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      auto const v = variables_of_.of_network[i];
      chorale::initialize(variables[i].value, nn::plan_of<Net>.variables[at(v)].spec,
                          Random{seed, static_cast<std::uint64_t>(v)});
    }
  }
  void place(Variables const& variables, Gradients const& gradients) {
    values_    = variables.values;
    gradients_ = gradients;
    plan_      = variables.plan;
    executors_ = StageExecutors<D>{schedule_.stage, sections_.size()};
    places_.assign(Traced<Net, NoDevice>::counts.variables, nullptr);
    for (std::size_t i = 0; i < plan_.size(); ++i) places_[at(variables_of_.of_network[i])] = &plan_[i];
  }

  /// Sets how stages exchange messages; these outlive the learner.
  void join(pipelines::Messages* messages) { messages_ = messages; }
  /// Sets where gradients of micro-batches go, and which rows of a batch each one has; null: they are added up, and a
  /// batch is cut in equal parts.
  void add_to(pipelines::MicroBatchSums* sums, Span<Range const> rows) {
    sums_ = sums;
    rows_.assign(rows.begin(), rows.end());
  }

  /// Bytes of all executors that a step takes, before there are any.
  ///
  /// planned   the variables of the stage
  /// rows      of a share, which is cut in equal micro-batches
  std::size_t planned_bytes(Span<PlannedVariable const> planned, std::size_t rows) const {
    auto places = typename SectionExecutor<D>::Places(Traced<Net, NoDevice>::counts.variables, nullptr);
    for (std::size_t i = 0; i < planned.size(); ++i) places[at(variables_of_.of_network[i])] = &planned[i];
    auto micro = std::vector<Range>{};
    for (int k = 0; k < schedule_.micro_batches; ++k) micro.push_back(share(rows, k, schedule_.micro_batches));
    return StageExecutors<D>::planned_bytes(schedule_, micro, [&](std::size_t x, int n) {
      return SectionExecutor<D>::planned_bytes(*sections_[x], places, n, schedule_.is_apart());
    });
  }
  /// Bytes of the sums of another stage, of a variable that both use, until the owner has added them to its own.
  std::size_t tie_bytes() const {
    auto most = std::size_t{0};
    for (auto const& tie : ties_)
      if (tie.owner == schedule_.stage && !tie.others.empty())
        most = std::max(most, graph::received_at_once(nn::plan_of<Net>.variables[at(tie.number)].size));
    return most * sizeof(float);
  }

  /// Executors of a chunk, of all numbers of rows.
  std::size_t executors(std::size_t chunk) const { return executors_.count(chunk); }
  /// Bytes of all executors.
  std::size_t activation_bytes() const { return executors_.bytes(); }

  template <class Step, class Batch> void learn(Step& step, Batch const& batch) {
    auto total = Sums{};
    begin(batch.rows, schedule_.micro_batches);
    frozen_.assign(step.pass.frozen.empty() ? 0 : places_.size(), char{0});
    for (std::size_t i = 0; i < step.pass.frozen.size(); ++i)
      frozen_[at(variables_of_.of_network[i])] = step.pass.frozen[i];
    for (auto const& e : schedule_.entries) {
      auto const rows = micro_rows_[at(e.micro_batch)];
      if (rows.size() == 0) continue;
      auto pass   = step.pass;
      pass.frozen = frozen_;
      pass.now.first_row += rows.begin;
      auto const x = at(e.chunk);
      if (e.work == pipelines::Work::forward) forward(x, e.micro_batch, pass, batch.rows_in(rows), true, &total);
      else backward(x, e, pass);
    }
    messages_->wait_all();
    if (sums_ == nullptr) add_ties(ties_, gradients_, schedule_, numbers_, *messages_, predicted_);
    if constexpr (counts_positions) step.positions(static_cast<float>(total.positions));
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step.loss(total.loss, total.metrics[I]...);
    }(std::make_index_sequence<metric_names.size()>{});
  }

  template <class Batch> void evaluate(Variables const&, Batch const& batch, StepHeader<float> header) {
    auto total = Sums{};
    forward_alone(batch, [](Range, Outputs const&) {}, &total);
    header.loss() = total.loss;
    if constexpr (counts_positions) header.positions() = static_cast<float>(total.positions);
    for (std::size_t i = 0; i < metric_names.size(); ++i) header.metric(i) = total.metrics[i];
    if (!owns(count_sections() - 1)) header.rows() = 0;  // which the stage of the outputs counts
  }

  /// All outputs of each row, one after another, on the stage of the last section: (B, output_width). Valid until the
  /// next call. Nothing on the others.
  template <class Batch> Span<float const> predict(Variables const&, Batch const& batch) {
    predicted_.resize(batch.rows * output_width);
    forward_alone(
        batch,
        [&](Range rows, Outputs const& outputs) {
          auto* to = predicted_.data() + rows.begin * output_width;
          for (std::size_t r = 0; r < rows.size(); ++r)
            for (std::size_t o = 0; o < Outputs::num_outputs; ++o)
              to = std::copy_n(outputs.output(o) + r * Outputs::width(o), Outputs::width(o), to);
        },
        nullptr);
    return owns(count_sections() - 1) ? Span<float const>{predicted_} : Span<float const>{};
  }

  /// The states of the metrics.
  auto& states() requires(!std::is_same_v<typename StatesOfTerms<Metrics>::type, metric::NoStates>) {
    return scores_.states();
  }

  /// Gives all stages that have a variable of several the sums of its owner, after these were reduced over replicas.
  void share_ties(Gradients const& gradients) { graph::share_ties(ties_, gradients, schedule_, numbers_, *messages_); }

  /// The name of variable i in the plan of another stage.
  std::string name_on(int stage, std::size_t i) const {
    auto other    = schedule_;
    other.stage   = stage;
    auto const of = stage_variables<Net>(whole_of<Net, D>(), ends_, other);
    return i < of.shapes.size() ? of.shapes[i].name : std::string{"a variable"};
  }

  /// Numbers of all sections from which norm_of() adds up the squares of all gradients.
  std::size_t norm_size() const { return norm_.size(); }
  /// Writes the numbers of this stage's sections, each variable at its owner; other numbers do not change.
  ///
  /// in_norm   called as in_norm(i): false for variables of the plan that count as zeros
  template <class InNorm> void write_squares(Gradients const& gradients, Span<double> numbers, InNorm&& in_norm) const {
    norm_.write_squares(schedule_, variables_of_, plan_, gradients.values, numbers, in_norm);
  }
  /// The sum of the squares of all gradients, of what all stages have written: the bits of one device.
  double norm_of(Span<double const> numbers) const { return norm_.norm_of(numbers); }

 private:
  int count_sections() const { return static_cast<int>(ends_.size()); }
  bool owns(int x) const { return schedule_.owns(x); }
  bool is_last(std::size_t x) const { return sections_[x]->index() + 1 == count_sections(); }

  void begin(std::size_t rows, int parts) {
    CHORALE_EXPECTS(messages_ != nullptr, "a stage of " + std::to_string(schedule_.stages) +
                                              " computes without the others: join() comes first");
    micro_rows_.clear();
    if (!rows_.empty()) micro_rows_.assign(rows_.begin(), rows_.end());
    else
      for (int k = 0; k < parts; ++k) micro_rows_.push_back(share(rows, k, parts));
    pending_.assign(micro_rows_.size(), static_cast<int>(sections_.size()));
    has_added_.assign(sections_.size(), 0);
    executors_.forget_all();  // a step that failed left some under way
  }

  /// A free executor of a section for so many rows.
  Slot& take(std::size_t x, int rows, int k) {
    return executors_.take(x, rows, k, *messages_, [&] {
      return std::make_unique<Slot>(*sections_[x], places_, rows, values_, gradients_.values, schedule_.is_apart(),
                                    device_);
    });
  }
  /// What an executor calls between layers.
  auto goes_on() const {
    return [this] { messages_->go_on(); };
  }
  std::size_t chunk_of(int section) const { return at(schedule_.chunk_of[at(section)]); }

  template <class Batch>
  Slot& forward(std::size_t x, int k, Pass const& pass, Batch const& batch, bool learns, Sums* total) {
    auto& slot     = take(x, static_cast<int>(batch.rows), k);
    auto& executor = slot.executor;
    auto const& in = sections_[x]->arrivals();
    came_.clear();
    for (std::size_t i = 0; i < in.size(); ++i) {
      auto const is_first = std::ranges::none_of(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(i),
                                                 [&](Crossing const& one) { return one.value == in[i].value; });
      if (!is_first) continue;
      auto const bytes = executor.bytes_of(in[i]);
      auto* const to   = executor.arrival(i);
      if (owns(in[i].other)) {
        std::memcpy(to, departure_of(in[i], k), bytes);
      } else {
        came_.push_back(messages_->receive(schedule_.stage_of[at(in[i].other)],
                                           numbers_.value(in[i], sections_[x]->index(), k),
                                           {reinterpret_cast<std::byte*>(to), bytes}));
      }
    }
    for (auto const message : came_) messages_->wait(message);
    read(executor, batch);
    executor.forward(pass, goes_on());
    send_values(x, slot, k);
    if (learns) receive_gradients(x, slot, k);
    if (is_last(x) && total != nullptr) add_scores(slot, x, batch, pass, *total);
    return slot;
  }
  float const* departure_of(Crossing const& one, int k) {
    auto const from = chunk_of(one.other);
    auto const& out = sections_[from]->departures();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i].value == one.value) return executors_.of(from, k).executor.departure(i);
    return nullptr;
  }
  void send_values(std::size_t x, Slot& slot, int k) {
    auto const& out = sections_[x]->departures();
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto const is_first = std::ranges::none_of(
          out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i),
          [&](Crossing const& one) { return one.value == out[i].value && one.other == out[i].other; });
      if (!is_first || owns(out[i].other)) continue;
      slot.sent.push_back(messages_->send(
          schedule_.stage_of[at(out[i].other)], numbers_.value(out[i], out[i].other, k),
          {reinterpret_cast<std::byte const*>(slot.executor.departure(i)), slot.executor.bytes_of(out[i])}));
    }
  }
  /// Posts the receives of all gradients that come back.
  void receive_gradients(std::size_t x, Slot& slot, int k) {
    auto const& out = sections_[x]->departures();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (owns(out[i].other)) continue;  // written there by backward, or by the loss
      auto* const d    = slot.executor.d_departure(i);
      auto const bytes = slot.executor.bytes_of(out[i]);
      if (!out[i].number) std::memset(d, 0, bytes);
      else
        slot.gradients.push_back(messages_->receive(schedule_.stage_of[at(out[i].other)], numbers_.gradient(out[i], k),
                                                    {reinterpret_cast<std::byte*>(d), bytes}));
    }
    if (sums_ == nullptr) return;
    for (auto t = slot.carried.size(); t < ties_.size(); ++t) slot.carried.emplace_back(plan_[ties_[t].variable].size);
    for (std::size_t t = 0; t < ties_.size(); ++t)
      if (auto const next = ties_[t].after(sections_[x]->index()); next >= 0 && !owns(next))
        slot.ties.push_back(messages_->receive(schedule_.stage_of[at(next)],
                                               numbers_.tie(ties_[t].number, sections_[x]->index(), k),
                                               std::as_writable_bytes(Span<float>{slot.carried[t]})));
  }

  void backward(std::size_t x, pipelines::Entry const& e, Pass const& pass) {
    auto const k   = e.micro_batch;
    auto& slot     = executors_.of(x, k);
    auto& executor = slot.executor;
    if (e.work != pipelines::Work::by_weights) {
      for (auto const message : slot.gradients) messages_->wait(message);
      slot.gradients.clear();
    }
    if (e.work != pipelines::Work::by_inputs) begin_gradients(x, slot, k);
    if (e.work == pipelines::Work::backward) executor.backward(pass, goes_on());
    else if (e.work == pipelines::Work::by_inputs) executor.backward_by_inputs(pass, goes_on());
    else executor.backward_by_weights(pass, goes_on());
    if (e.work != pipelines::Work::by_weights) send_gradients(x, slot, k);
    if (e.work == pipelines::Work::by_inputs) return;
    end_gradients(x, slot, k);
    slot.micro_batch = -1;
  }
  void send_gradients(std::size_t x, Slot& slot, int k) {
    auto const& in = sections_[x]->arrivals();
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!in[i].number) continue;
      auto const* const d = slot.executor.d_arrival(i);
      auto const bytes    = slot.executor.bytes_of(in[i]);
      if (owns(in[i].other)) {
        auto const from = chunk_of(in[i].other);
        auto const& out = sections_[from]->departures();
        for (std::size_t o = 0; o < out.size(); ++o)
          if (out[o].reader == in[i].reader) std::memcpy(executors_.of(from, k).executor.d_departure(o), d, bytes);
      } else {
        slot.sent.push_back(messages_->send(schedule_.stage_of[at(in[i].other)], numbers_.gradient(in[i], k),
                                            {reinterpret_cast<std::byte const*>(d), bytes}));
      }
    }
  }

  /// Tells an executor where gradients of variables go: to the gradients of the step, or to separate ones of the
  /// micro-batch, which begin with what a later section has sent of variables that both use.
  void begin_gradients(std::size_t x, Slot& slot, int k) {
    if (sums_ == nullptr) return slot.executor.add_to(gradients_.values, std::exchange(has_added_[x], 1) == 0);
    auto const to = sums_->of(k);
    slot.executor.add_to(to, true);
    for (auto const message : slot.ties) messages_->wait(message);
    for (std::size_t t = 0; t < ties_.size(); ++t)
      if (auto const next = ties_[t].after(sections_[x]->index()); next >= 0 && !owns(next))
        std::ranges::copy(slot.carried[t], &to[plan_[ties_[t].variable].offset]);
  }
  /// Sends gradients on that an earlier section adds to, and ends a micro-batch that has gone through all sections.
  void end_gradients(std::size_t x, Slot& slot, int k) {
    if (sums_ == nullptr) return;
    for (std::size_t t = 0; t < ties_.size(); ++t) {
      auto const before = ties_[t].before(sections_[x]->index());
      if (before < 0 || owns(before)) continue;
      auto const& v = plan_[ties_[t].variable];
      std::copy_n(&sums_->of(k)[v.offset], v.size, slot.carried[t].begin());
      slot.sent.push_back(messages_->send(schedule_.stage_of[at(before)], numbers_.tie(ties_[t].number, before, k),
                                          std::as_bytes(Span<float const>{slot.carried[t]})));
    }
    if (--pending_[at(k)] > 0) return;
    StepHeader{sums_->of(k)}.rows() = static_cast<float>(micro_rows_[at(k)].size());
    sums_->complete(k);
  }

  template <class Batch> void read(SectionExecutor<D>& executor, Batch const& batch) {
    [&]<class... F>(detail::List<F...>) {
      auto i = std::size_t{0};
      (executor.read(i++, batch[typename WithoutRequest<F>::type{}].data()), ...);
    }(typename Net::inputs{});
  }

  /// Forward of all micro-batches, one after another: calls f(rows, outputs) on the stage that has the outputs.
  template <class Batch, class F> void forward_alone(Batch const& batch, F&& f, Sums* total) {
    auto const kept = std::exchange(rows_, {});
    begin(batch.rows, schedule_.micro_batches);
    rows_           = kept;
    auto by_section = schedule_.sections;
    std::ranges::sort(by_section);
    for (std::size_t k = 0; k < micro_rows_.size(); ++k) {
      if (micro_rows_[k].size() == 0) continue;
      for (auto const section : by_section) {
        auto const x = chunk_of(section);
        auto& slot   = forward(x, static_cast<int>(k), {}, batch.rows_in(micro_rows_[k]), false, total);
        if (is_last(x)) f(micro_rows_[k], Outputs::of(*sections_[x], slot.executor));
      }
      executors_.free_all();
    }
    messages_->wait_all();
  }

  /// Losses and metrics of a micro-batch, and the gradients by the outputs.
  template <class Batch> void add_scores(Slot& slot, std::size_t x, Batch const& batch, Pass const& pass, Sums& total) {
    auto const over   = pass.training ? metric::Over::step : metric::Over::evaluation;
    auto outputs      = Outputs::of(*sections_[x], slot.executor);
    auto const scores = scores_.of(batch, outputs, over, {});
    total += scores;
    if (sums_ == nullptr || !pass.training) return;
    auto const header = StepHeader{sums_->of(slot.micro_batch)};
    header.loss()     = scores.loss;
    if constexpr (counts_positions) header.positions() = static_cast<float>(scores.positions);
    for (std::size_t j = 0; j < scores.metrics.size(); ++j) header.metric(j) = scores.metrics[j];
  }

  D device_;
  Scoring scores_;
  pipelines::StageSchedule schedule_;
  std::vector<int> ends_;  // of all sections
  StageNorm<Net, D> norm_;
  MessageNumbers numbers_;
  std::shared_ptr<Schedule const> whole_schedule_;        // of the network
  std::vector<std::shared_ptr<Section const>> sections_;  // of each chunk
  StageVariables variables_of_;
  std::vector<Tie> ties_;
  Span<float> values_;
  Gradients gradients_;
  Span<PlannedVariable const> plan_;
  typename SectionExecutor<D>::Places places_;
  std::vector<char> has_added_;    // chunks, in this step
  std::vector<std::size_t> came_;  // messages
  StageExecutors<D> executors_;
  std::vector<char> frozen_;              // variables of the network, see Pass
  std::vector<Range> rows_, micro_rows_;  // that were set; of the batch under way
  std::vector<int> pending_;              // chunks of each micro-batch
  pipelines::Messages* messages_   = nullptr;
  pipelines::MicroBatchSums* sums_ = nullptr;
  std::vector<float> predicted_;
};

}  // namespace chorale::nn::graph
