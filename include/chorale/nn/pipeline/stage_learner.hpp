// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class: forward, backward and the messages between them share the micro-batches that are under way.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/graph.hpp>
#include <chorale/nn/graph/learner.hpp>
#include <chorale/nn/graph/term_losses.hpp>
#include <chorale/nn/pipeline/cut.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/pipeline/section_executor.hpp>
#include <chorale/tensor/run_time_plan.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// A traced network as sections are cut from it.
template <class Net, class D>
WholeNetwork whole_of() {
  using Low = Lowered<Net, D>;
  return {Low::calls, Low::calls.uses, Low::calls.variables, Low::calls.inputs, Low::trains};
}

/// The variables of one stage: those that its sections use, in the order of the network.
struct StageVariables {
  std::vector<int> of_network;                                             // number of each in the network
  std::vector<int> owner;                                                  // section that uses it first, which owns it
  std::vector<NamedShape> shapes;
};

/// The sections that use a variable, ascending.
inline std::vector<int> users_of(WholeNetwork const& whole, std::vector<int> const& ends, int variable) {
  auto users = std::vector<int>{};
  for (std::size_t c = 0; c < whole.g.calls.size(); ++c)
    for (int i = 0; i < whole.g.calls[c].uses; ++i)
      if (whole.uses[at(whole.g.calls[c].first_use + i)] == variable)
        if (auto const x = whole.section_of(ends, static_cast<int>(c)); users.empty() || users.back() != x)
          users.push_back(x);
  return users;
}

template <class Net>
StageVariables stage_variables(WholeNetwork const& whole, std::vector<int> const& ends,
                               pipeline::StageSchedule const& schedule) {
  auto made = StageVariables{};
  for (std::size_t v = 0; v < whole.variables.size(); ++v) {
    auto const users = users_of(whole, ends, static_cast<int>(v));
    if (!std::ranges::any_of(users, [&](int x) { return schedule.stage_of[at(x)] == schedule.stage; })) continue;
    auto const& planned = nn::plan_of<Net>.variables[v];
    auto const& spec    = planned.spec;
    made.of_network.push_back(static_cast<int>(v));
    made.owner.push_back(users.front());
    made.shapes.push_back({.name = std::string{std::string_view{planned.name}},
                           .dims = {spec.dims.begin(), spec.dims.begin() + spec.rank}, .init = spec.init,
                           .fan_in = spec.fan_in, .fan_out = spec.fan_out, .momentum = spec.momentum,
                           .layer = planned.layer, .tracked = spec.tracked});
  }
  return made;
}

/// The outputs of a network on the stage that has them all, as losses and metrics read them.
template <class Net>
struct StageOutputs {
  static constexpr std::size_t num_outputs = Traced<Net, NoDevice>::counts.outputs;
  using Overwritten = std::array<bool, num_outputs>;
  static constexpr int ragged_of(std::size_t) { return -1; }

  std::array<float const*, num_outputs> y{};
  std::array<float*, num_outputs> dy{};

  float const* output(std::size_t o) const { return y[o]; }
  RaggedRows const& ragged(std::size_t) const { return none; }

 private:
  static inline RaggedRows const none{};
};

/// How one stage of a pipeline computes: the Learner of a copy that has the variables of its sections alone.
///
/// keeps     a step allocates nothing once its numbers of rows were seen. One executor for each micro-batch that is
///           under way in a section, as many as the schedule says
/// order     gradients are added up in the order of the schedule; or, for MicroBatchSums, each micro-batch by itself,
///           with the bits that one device has for these rows
template <class Net, class D, class Losses, class Metrics>
class StageLearner {
  using Whole   = GraphLearner<Net, D, Losses, Metrics>;
  using Outputs = StageOutputs<Net>;
  using Compare = TermLosses<Net, D, Outputs>;
  template <class Term>
  using ValueOf = typename Compare::template ValueOf<Term>;
  static_assert(std::is_same_v<D, Cpu>, "chorale: a pipeline computes on Cpu only. Use a strategy over Cpu");
  static_assert(!has_ragged(Traced<Net, NoDevice>::calls), "chorale: a pipeline takes rows of one shape. Give the "
                                                           "fields of this network one length");
  static_assert(!has_tables<Net>(), "chorale: a pipeline has no gradients that are rows of a table. Write "
                                    "nn::Embedding<rows, width, nn::DenseGradient>, or use MirroredStrategy");
  static_assert(Whole::joins_below == 0, "chorale: nn::SyncBatchNorm adds up over all rows of a batch, and a pipeline "
                                         "computes micro-batches. Use nn::BatchNorm");

 public:
  static constexpr Memory memory      = D::memory;
  static constexpr auto metric_names  = Whole::metric_names;
  static constexpr auto output_width  = Whole::output_width;
  static constexpr NetworkWork work   = Whole::work;

  /// ends      of the sections, see cut_of
  StageLearner(D device, Losses losses, Metrics metrics, pipeline::StageSchedule schedule, std::vector<int> ends)
      : device_{std::move(device)}, losses_{std::move(losses)}, metrics_{std::move(metrics)},
        states_{StatesOfTerms<Metrics>::make(metrics_)}, schedule_{std::move(schedule)}, ends_{std::move(ends)} {
    auto const whole = whole_of<Net, D>();
    whole_schedule_  = std::make_shared<Schedule const>(Scheduler{whole.g, whole.trains}.schedule());
    for (auto const x : schedule_.sections)
      sections_.push_back(std::make_shared<Section const>(whole, *whole_schedule_, ends_, x));
    variables_of_ = stage_variables<Net>(whole, ends_, schedule_);
    find_ties(whole);
  }

  pipeline::StageSchedule const& schedule() const { return schedule_; }
  StageVariables const& variables() const { return variables_of_; }
  /// The stage that owns a variable of the network: that of the first section which uses it.
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
    pools_     = std::vector<std::vector<std::unique_ptr<Slot>>>(sections_.size());
    places_.assign(Traced<Net, NoDevice>::counts.variables, nullptr);
    for (std::size_t i = 0; i < plan_.size(); ++i) places_[at(variables_of_.of_network[i])] = &plan_[i];
    micro_.assign(gradients.values.size(), 0.0F);
    find_ranges();
  }

  /// Sets how stages exchange messages; these outlive the learner.
  void join(pipeline::Messages* messages) { messages_ = messages; }
  /// Sets where gradients of micro-batches go, and which rows of a batch each one has; null: they are added up, and a
  /// batch is cut in equal parts.
  void add_to(pipeline::MicroBatchSums* sums, Span<Range const> rows) {
    sums_ = sums;
    rows_.assign(rows.begin(), rows.end());
  }

  /// Executors of a chunk, of all numbers of rows.
  std::size_t executors(std::size_t chunk) const { return pools_[chunk].size(); }
  /// Bytes of all executors.
  std::size_t activation_bytes() const {
    auto sum = std::size_t{0};
    for (auto const& pool : pools_)
      for (auto const& slot : pool) sum += slot->executor.bytes();
    return sum;
  }

  template <class Step, class Batch>
  void learn(Step& step, Batch const& batch) {
    auto total = Scores{};
    begin(batch.rows, schedule_.micro_batches);
    for (auto const& e : schedule_.entries) {
      auto const rows = micro_rows_[at(e.micro_batch)];
      if (rows.size() == 0) continue;
      auto pass          = step.pass;
      pass.now.first_row += rows.begin;
      auto const x = at(e.chunk);
      if (e.work == pipeline::Work::forward) forward(x, e.micro_batch, pass, batch.rows_in(rows), true, &total);
      else backward(x, e, pass);
    }
    messages_->wait_all();
    add_ties();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step.loss(total.loss, total.metrics[I]...);
    }(std::make_index_sequence<metric_names.size()>{});
  }

  template <class Batch>
  void evaluate(Variables const&, Batch const& batch, StepHeader<float> header) {
    auto total = Scores{};
    forward_alone(batch, [](Range, Outputs const&) {}, &total);
    header.loss() = total.loss;
    for (std::size_t i = 0; i < metric_names.size(); ++i) header.metric(i) = total.metrics[i];
    if (!owns(count_sections() - 1)) header.rows() = 0;                    // which the stage of the outputs counts
  }

  /// All outputs of each row, one after another, on the stage of the last section: (B, output_width). Valid until the
  /// next call. Nothing on the others.
  template <class Batch>
  Span<float const> predict(Variables const&, Batch const& batch) {
    predicted_.resize(batch.rows * output_width);
    forward_alone(batch, [&](Range rows, Outputs const& outputs) {
      auto* to = predicted_.data() + rows.begin * output_width;
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t o = 0; o < Outputs::num_outputs; ++o)
          to = std::copy_n(outputs.output(o) + r * width(o), width(o), to);
    }, nullptr);
    return owns(count_sections() - 1) ? Span<float const>{predicted_} : Span<float const>{};
  }

  /// The states of the metrics.
  auto& states()
    requires(!std::is_same_v<typename StatesOfTerms<Metrics>::type, metric::NoStates>)
  {
    return states_;
  }

  /// Gives all stages that have a variable of several the sums of its owner, after these were reduced over replicas.
  void share_ties(Gradients const& gradients) {
    for (auto const& tie : ties_) {
      auto const bytes = std::as_writable_bytes(gradients[tie.variable]);
      for (auto const x : tie.others) {
        auto const s = schedule_.stage_of[at(x)];
        if (schedule_.stage == tie.owner) messages_->send(s, tie_message(tie, x, 0), bytes);
        else if (schedule_.stage == s) messages_->receive(tie.owner, tie_message(tie, x, 0), bytes);
      }
    }
    messages_->wait_all();
  }

  /// The name of variable i in the plan of another stage.
  std::string name_on(int stage, std::size_t i) const {
    auto other    = schedule_;
    other.stage   = stage;
    auto const of = stage_variables<Net>(whole_of<Net, D>(), ends_, other);
    return i < of.shapes.size() ? of.shapes[i].name : std::string{"a variable"};
  }

  /// Numbers of all sections from which norm_of() adds up the squares of all gradients.
  std::size_t norm_size() const {
    auto sum = std::size_t{0};
    for (int x = 0; x < count_sections(); ++x) sum += SquareTree::most_nodes(lines_of(x).size());
    return sum;
  }
  /// Writes those of the sections of this stage, each variable at its owner; the others stay as they are.
  ///
  /// in_norm   called as in_norm(i): false for variables of the plan that count as zeros
  template <class InNorm>
  void write_squares(Gradients const& gradients, Span<double> numbers, InNorm&& in_norm) const {
    auto first = std::size_t{0};
    for (int x = count_sections(); x-- > 0;) {
      auto const lines = lines_of(x);
      if (owns(x) && lines.size() > 0) {
        auto part     = Range{gradients.values.size(), 0};
        auto left_out = std::vector<Range>{};
        each_owned(x, [&](std::size_t i) {
          part.begin = std::min(part.begin, plan_[i].offset);
          part.end   = std::max(part.end, plan_[i].offset + plan::aligned(plan_[i].size));
        });
        each_owned(x, [&](std::size_t i) {
          auto const begin = plan_[i].offset - part.begin;
          if (!in_norm(i)) left_out.push_back({begin, begin + plan::aligned(plan_[i].size)});
        });
        std::ranges::sort(left_out, {}, &Range::begin);
        auto const own = gradients.values.subspan(part.begin, part.size());
        auto to        = first;
        SquareTree::each_node(lines, [&](SquareTree::Node node) {
          numbers[to++] = SquareTree::sum(own, {node.first - lines.begin, node.level}, left_out);
        });
      }
      first += SquareTree::most_nodes(lines.size());
    }
  }
  /// The sum of the squares of all gradients, of what all stages have written: the bits of one device.
  double norm_of(Span<double const> numbers) const {
    struct Given {
      SquareTree::Node node;
      double value;
    };
    auto all   = std::vector<Given>{};
    auto first = std::size_t{0};
    for (int x = count_sections(); x-- > 0;) {
      auto from = first;
      SquareTree::each_node(lines_of(x), [&](SquareTree::Node node) { all.push_back({node, numbers[from++]}); });
      first += SquareTree::most_nodes(lines_of(x).size());
    }
    auto next        = std::size_t{0};
    auto const lines = nn::plan_of<Net>.body().size() / SquareTree::line;
    return SquareTree::sum_of(lines, SquareTree::root(lines),
                              [&](SquareTree::Node node) { return next < all.size() && all[next].node == node; },
                              [&] { return all[next++].value; });
  }

 private:
  struct Scores {
    float loss = 0;
    std::array<float, metric_names.size()> metrics{};
  };
  /// An executor with the messages that use its memory.
  struct Slot {
    template <class... Args>
    explicit Slot(Args&&... args) : executor{std::forward<Args>(args)...} {}

    SectionExecutor<D> executor;
    int micro_batch = -1;                                                  // under way; -1: none
    std::vector<std::size_t> sent, gradients, ties;                        // messages
    std::vector<std::vector<float>> carried;                               // of each tie: what comes, and what goes on
  };
  /// A variable that several sections use, at least one of which this stage computes.
  struct Tie {
    std::size_t variable;                                                  // in the plan of the stage
    int number;                                                            // in the network
    std::vector<int> sections;                                             // that use it, ascending
    int owner;                                                             // stage
    std::vector<int> others;                                               // of other stages the last section each
  };

  static constexpr auto const& g = Lowered<Net, D>::calls;
  static std::size_t width(std::size_t o) { return g.values[at(g.outputs[o])].size; }
  int  count_sections() const { return static_cast<int>(ends_.size()); }
  bool owns(int x) const { return schedule_.stage_of[at(x)] == schedule_.stage; }
  bool is_last(std::size_t x) const { return sections_[x]->index() + 1 == count_sections(); }

  // Numbers of messages: which value or which part of a gradient, and of which micro-batch.
  std::uint32_t numbered(std::size_t what, int k) const {
    return static_cast<std::uint32_t>(what * at(schedule_.micro_batches) + at(k));
  }
  std::uint32_t value_message(Crossing const& one, int to, int k) const {
    return numbered(at(one.value) * ends_.size() + at(to), k);
  }
  static constexpr std::size_t readers = g.ins.size() + g.outputs.size();
  std::uint32_t gradient_message(Crossing const& one, int k) const {
    auto const reader = one.reader >= 0 ? at(one.reader) : g.ins.size() + at(-1 - one.reader);
    return numbered(g.values.size() * ends_.size() + reader, k);
  }
  std::uint32_t tie_message(Tie const& tie, int to, int k) const {
    return numbered(g.values.size() * ends_.size() + readers + at(tie.number) * ends_.size() + at(to), k);
  }
  /// The lines of the variables that a section owns, in the body of the network's plan: those of later sections come
  /// first.
  Range lines_of(int x) const {
    auto part         = Range{nn::plan_of<Net>.elements, 0};
    auto const& whole = whole_of<Net, D>();
    for (std::size_t v = 0; v < whole.variables.size(); ++v) {
      if (whole.section_of(ends_, whole.variables[v].call) != x) continue;
      auto const& planned = nn::plan_of<Net>.variables[v];
      part.begin          = std::min(part.begin, planned.offset);
      part.end            = std::max(part.end, planned.offset + plan::aligned(planned.size));
    }
    if (part.end == 0) return {};
    return {(part.begin - plan::header) / SquareTree::line, (part.end - plan::header) / SquareTree::line};
  }
  /// Calls f(i) for each variable of the plan that a section owns.
  template <class F>
  void each_owned(int x, F&& f) const {
    for (std::size_t i = 0; i < plan_.size(); ++i)
      if (variables_of_.owner[i] == x) f(i);
  }

  void find_ties(WholeNetwork const& whole) {
    for (std::size_t i = 0; i < variables_of_.of_network.size(); ++i)
      if (auto users = users_of(whole, ends_, variables_of_.of_network[i]); users.size() > 1) {
        auto const stage = [&](int x) { return schedule_.stage_of[at(x)]; };
        auto tie         = Tie{i, variables_of_.of_network[i], std::move(users), 0, {}};
        tie.owner        = stage(tie.sections.front());
        for (auto u = tie.sections.size(); u-- > 0;) {
          auto const x = tie.sections[u];
          if (stage(x) != tie.owner && std::ranges::none_of(tie.others, [&](int y) { return stage(y) == stage(x); }))
            tie.others.push_back(x);
        }
        ties_.push_back(std::move(tie));
      }
  }

  void begin(std::size_t rows, int parts) {
    CHORALE_EXPECTS(messages_ != nullptr, "a stage of " + std::to_string(schedule_.stages) +
                                              " computes without the others: join() comes first");
    micro_rows_.clear();
    if (!rows_.empty()) micro_rows_.assign(rows_.begin(), rows_.end());
    else
      for (int k = 0; k < parts; ++k) micro_rows_.push_back(share(rows, k, parts));
    pending_.assign(micro_rows_.size(), static_cast<int>(sections_.size()));
    for (auto const& pool : pools_)                                        // a step that failed left some under way
      for (auto const& slot : pool) slot->micro_batch = -1, slot->sent.clear();
  }

  /// A free executor of a section for so many rows.
  Slot& take(std::size_t x, int rows, int k) {
    for (auto const& slot : pools_[x])
      if (slot->micro_batch < 0 && slot->executor.rows() == rows) return begin(*slot, k);
    pools_[x].push_back(std::make_unique<Slot>(*sections_[x], places_, rows, values_, Span<float>{micro_},
                                               schedule_.is_apart(), device_));
    for (auto const& tie : ties_) pools_[x].back()->carried.emplace_back(plan_[tie.variable].size);
    return begin(*pools_[x].back(), k);
  }
  Slot& begin(Slot& slot, int k) {
    for (auto const message : slot.sent) messages_->wait(message);         // they read memory that is now written
    slot.sent.clear(), slot.gradients.clear(), slot.ties.clear();
    slot.micro_batch = k;
    return slot;
  }
  /// The executor in which a micro-batch is under way in a section of this stage.
  Slot& of(std::size_t x, int k) {
    for (auto const& slot : pools_[x])
      if (slot->micro_batch == k) return *slot;
    throw BadArgument{"micro-batch " + std::to_string(k) + " is not under way on stage " +
                          std::to_string(schedule_.stage) + ", of " + std::to_string(pools_[x].size()) + ".",
                      "a schedule that a Timetable has checked."};
  }
  std::size_t chunk_of(int section) const { return at(schedule_.chunk_of[at(section)]); }

  template <class Batch>
  Slot& forward(std::size_t x, int k, Pass const& pass, Batch const& batch, bool learns, Scores* scores) {
    auto& slot        = take(x, static_cast<int>(batch.rows), k);
    auto& executor    = slot.executor;
    auto const& in    = sections_[x]->arrivals();
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
                                           value_message(in[i], sections_[x]->index(), k),
                                           {reinterpret_cast<std::byte*>(to), bytes}));
      }
    }
    for (auto const message : came_) messages_->wait(message);
    read(executor, batch);
    executor.forward(pass);
    send_values(x, slot, k);
    if (learns) receive_gradients(x, slot, k);
    if (is_last(x) && scores != nullptr) add_scores(slot, x, batch, pass, *scores);
    return slot;
  }
  float const* departure_of(Crossing const& one, int k) {
    auto const from = chunk_of(one.other);
    auto const& out = sections_[from]->departures();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i].value == one.value) return of(from, k).executor.departure(i);
    return nullptr;
  }
  void send_values(std::size_t x, Slot& slot, int k) {
    auto const& out = sections_[x]->departures();
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto const is_first = std::ranges::none_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i),
                                                 [&](Crossing const& one) {
                                                   return one.value == out[i].value && one.other == out[i].other;
                                                 });
      if (!is_first || owns(out[i].other)) continue;
      slot.sent.push_back(messages_->send(
          schedule_.stage_of[at(out[i].other)], value_message(out[i], out[i].other, k),
          {reinterpret_cast<std::byte const*>(slot.executor.departure(i)), slot.executor.bytes_of(out[i])}));
    }
  }
  /// Posts the receives of all gradients that come back.
  void receive_gradients(std::size_t x, Slot& slot, int k) {
    auto const& out = sections_[x]->departures();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (owns(out[i].other)) continue;                                    // written there by backward, or by the loss
      auto* const d    = slot.executor.d_departure(i);
      auto const bytes = slot.executor.bytes_of(out[i]);
      if (!out[i].number) std::memset(d, 0, bytes);
      else
        slot.gradients.push_back(messages_->receive(schedule_.stage_of[at(out[i].other)], gradient_message(out[i], k),
                                                    {reinterpret_cast<std::byte*>(d), bytes}));
    }
    if (sums_ == nullptr) return;
    for (std::size_t t = 0; t < ties_.size(); ++t)
      if (auto const next = user_after(ties_[t], sections_[x]->index()); next >= 0 && !owns(next))
        slot.ties.push_back(messages_->receive(schedule_.stage_of[at(next)],
                                               tie_message(ties_[t], sections_[x]->index(), k),
                                               std::as_writable_bytes(Span<float>{slot.carried[t]})));
  }

  void backward(std::size_t x, pipeline::Entry const& e, Pass const& pass) {
    auto const k   = e.micro_batch;
    auto& slot     = of(x, k);
    auto& executor = slot.executor;
    if (e.work != pipeline::Work::by_weights) {
      for (auto const message : slot.gradients) messages_->wait(message);
      slot.gradients.clear();
    }
    if (e.work != pipeline::Work::by_inputs) begin_gradients(x, slot, k);
    if (e.work == pipeline::Work::backward) executor.backward(pass);
    else if (e.work == pipeline::Work::by_inputs) executor.backward_by_inputs(pass);
    else executor.backward_by_weights(pass);
    if (e.work != pipeline::Work::by_weights) send_gradients(x, slot, k);
    if (e.work == pipeline::Work::by_inputs) return;
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
          if (out[o].reader == in[i].reader) std::memcpy(of(from, k).executor.d_departure(o), d, bytes);
      } else {
        slot.sent.push_back(messages_->send(schedule_.stage_of[at(in[i].other)], gradient_message(in[i], k),
                                            {reinterpret_cast<std::byte const*>(d), bytes}));
      }
    }
  }

  // Sections that use a tied variable before and after one that does; -1: none.
  static int user_after(Tie const& tie, int section) {
    auto const next = std::ranges::upper_bound(tie.sections, section);
    return next == tie.sections.end() || std::ranges::count(tie.sections, section) == 0 ? -1 : *next;
  }
  static int user_before(Tie const& tie, int section) {
    auto const here = std::ranges::find(tie.sections, section);
    return here == tie.sections.begin() || here == tie.sections.end() ? -1 : *(here - 1);
  }

  /// Finds the places of the variables that each section uses.
  void find_ranges() {
    ranges_.assign(sections_.size(), {});
    for (std::size_t x = 0; x < sections_.size(); ++x) {
      auto const& whole        = sections_[x]->whole();
      auto const [first, last] = sections_[x]->range();
      for (auto c = first; c < last; ++c)
        for (int i = 0; i < whole.g.calls[at(c)].uses; ++i) {
          auto const& v    = *places_[at(whole.uses[at(whole.g.calls[at(c)].first_use + i)])];
          auto const range = Range{v.offset, v.end()};
          if (std::ranges::count(ranges_[x], range) == 0) ranges_[x].push_back(range);
        }
    }
  }
  /// Sets the gradients of a section's variables to zeros; those of variables that a later section uses to what that
  /// has.
  void begin_gradients(std::size_t x, Slot& slot, int k) {
    for (auto const range : ranges_[x]) std::fill_n(&micro_[range.begin], range.size(), 0.0F);
    if (sums_ == nullptr) return;
    for (auto const message : slot.ties) messages_->wait(message);
    for (std::size_t t = 0; t < ties_.size(); ++t) {
      auto const next = user_after(ties_[t], sections_[x]->index());
      if (next < 0) continue;
      auto const& v = plan_[ties_[t].variable];
      if (owns(next)) std::copy_n(&sums_->of(k)[v.offset], v.size, &micro_[v.offset]);
      else std::ranges::copy(slot.carried[t], &micro_[v.offset]);
    }
  }
  /// Adds the gradients of a section's variables to the others, and sends those on that an earlier section adds to.
  void end_gradients(std::size_t x, Slot& slot, int k) {
    auto const to = sums_ == nullptr ? gradients_.values : sums_->of(k);
    for (auto const range : ranges_[x])
      if (sums_ != nullptr) std::copy_n(&micro_[range.begin], range.size(), &to[range.begin]);
      else
        for (auto i = range.begin; i < range.end; ++i) to[i] += micro_[i];
    if (sums_ == nullptr) return;
    for (std::size_t t = 0; t < ties_.size(); ++t) {
      auto const before = user_before(ties_[t], sections_[x]->index());
      if (before < 0 || owns(before)) continue;
      auto const& v = plan_[ties_[t].variable];
      slot.carried[t].assign(&micro_[v.offset], &micro_[v.offset] + v.size);
      slot.sent.push_back(messages_->send(schedule_.stage_of[at(before)], tie_message(ties_[t], before, k),
                                          std::as_bytes(Span<float const>{slot.carried[t]})));
    }
    if (--pending_[at(k)] > 0) return;
    StepHeader{sums_->of(k)}.rows() = static_cast<float>(micro_rows_[at(k)].size());
    sums_->complete(k);
  }
  /// Brings the sums of tied variables together at their owner, where gradients of micro-batches were added up.
  void add_ties() {
    if (sums_ != nullptr) return;
    for (auto const& tie : ties_) {
      auto const mine = gradients_[tie.variable];
      for (auto const x : tie.others) {
        auto const s      = schedule_.stage_of[at(x)];
        auto const number = tie_message(tie, x, 0);
        if (schedule_.stage == s) {
          messages_->wait(messages_->send(tie.owner, number, std::as_bytes(mine)));
        } else if (schedule_.stage == tie.owner) {
          predicted_.resize(mine.size());
          messages_->wait(messages_->receive(s, number, std::as_writable_bytes(Span<float>{predicted_})));
          for (std::size_t j = 0; j < mine.size(); ++j) mine[j] += predicted_[j];
        }
      }
    }
  }

  template <class Batch>
  void read(SectionExecutor<D>& executor, Batch const& batch) {
    [&]<class... F>(detail::List<F...>) {
      auto i = std::size_t{0};
      (executor.read(i++, batch[typename WithoutRequest<F>::type{}].data()), ...);
    }(typename Net::inputs{});
  }

  /// Forward of all micro-batches, one after another: calls f(rows, outputs) on the stage that has the outputs.
  template <class Batch, class F>
  void forward_alone(Batch const& batch, F&& f, Scores* scores) {
    auto const kept = std::exchange(rows_, {});
    begin(batch.rows, schedule_.micro_batches);
    rows_ = kept;
    auto by_section = schedule_.sections;
    std::ranges::sort(by_section);
    for (std::size_t k = 0; k < micro_rows_.size(); ++k) {
      if (micro_rows_[k].size() == 0) continue;
      for (auto const section : by_section) {
        auto const x = chunk_of(section);
        auto& slot   = forward(x, static_cast<int>(k), {}, batch.rows_in(micro_rows_[k]), false, scores);
        if (is_last(x)) f(micro_rows_[k], outputs_of(slot, x));
      }
      for (auto const& pool : pools_)
        for (auto const& slot : pool) slot->micro_batch = -1;
    }
    messages_->wait_all();
  }

  Outputs outputs_of(Slot& slot, std::size_t x) {
    auto made       = Outputs{};
    auto const& out = sections_[x]->departures();
    auto const& in  = sections_[x]->arrivals();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i].reader < 0) {
        made.y[at(-1 - out[i].reader)]  = slot.executor.departure(i);
        made.dy[at(-1 - out[i].reader)] = slot.executor.d_departure(i);
      }
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i].reader < 0) {
        made.y[at(-1 - in[i].reader)]  = slot.executor.arrival(i);
        made.dy[at(-1 - in[i].reader)] = slot.executor.d_arrival(i);
      }
    return made;
  }

  /// Losses and metrics of a micro-batch, and the gradients by the outputs.
  template <class Batch>
  void add_scores(Slot& slot, std::size_t x, Batch const& batch, Pass const& pass, Scores& total) {
    auto const outputs = outputs_of(slot, x);
    auto const over    = pass.training ? metric::Over::step : metric::Over::evaluation;
    auto scores        = Scores{};
    auto has           = std::array<bool, Outputs::num_outputs>{};
    auto i             = std::size_t{0};
    auto const add     = [&](auto const& term) {
      using Term           = std::remove_cvref_t<decltype(term)>;
      constexpr auto o     = Compare::template output_of<Term>;
      auto const elements  = batch.rows * width(o);
      auto const is_second = std::exchange(has[o], true);
      auto* const dy       = is_second ? second_.take(elements) : outputs.dy[o];
      auto const sum       = Compare::loss_of(term, batch, outputs, dy, {}, second_);
      if (is_second) Kernels<D>::sum(elements, outputs.dy[o], dy, outputs.dy[o]);
      scores.loss += sum;
      if constexpr (std::tuple_size_v<Losses> > 1) scores.metrics[i++] = sum;
    };
    std::apply([&](auto const&... term) { (add(term), ...); }, losses_);
    for (std::size_t o = 0; o < has.size(); ++o)
      if (!has[o]) std::fill_n(outputs.dy[o], batch.rows * width(o), 0.0F);
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& term) {
      scores.metrics[i++] = measure<I>(term, batch, outputs, over);
    });
    total.loss += scores.loss;
    for (std::size_t j = 0; j < scores.metrics.size(); ++j) total.metrics[j] += scores.metrics[j];
    if (sums_ == nullptr || !pass.training) return;
    auto const header = StepHeader{sums_->of(slot.micro_batch)};
    header.loss()     = scores.loss;
    for (std::size_t j = 0; j < scores.metrics.size(); ++j) header.metric(j) = scores.metrics[j];
  }
  template <std::size_t I, class Term, class Batch>
  float measure(Term const& term, Batch const& batch, Outputs const& outputs, metric::Over over) {
    using F                  = typename Term::field;
    using C                  = Compared<decltype(Term::what), ValueOf<Term>, F>;
    constexpr auto targets   = targets_in<F> / C::positions;
    auto const* const y      = outputs.output(Compare::template output_of<Term>);
    auto const* const wanted = batch[F{}].data();
    auto const groups        = batch.rows * C::positions;
    if constexpr (metric::HasState<decltype(Term::what)>) {
      states_.template add<I>(over, groups, C::width, y, wanted, targets);
      return metric::not_in_header(over);
    } else {
      return metric::sum_of(term.what, groups, C::width, y, wanted, targets) / static_cast<float>(C::positions);
    }
  }

  D device_;
  Losses losses_;
  Metrics metrics_;
  [[no_unique_address]] typename StatesOfTerms<Metrics>::type states_;
  pipeline::StageSchedule schedule_;
  std::vector<int> ends_;                                                  // of all sections
  std::shared_ptr<Schedule const> whole_schedule_;                         // of the network
  std::vector<std::shared_ptr<Section const>> sections_;                   // of each chunk
  StageVariables variables_of_;
  std::vector<Tie> ties_;
  Span<float> values_;
  Gradients gradients_;
  Span<PlannedVariable const> plan_;
  typename SectionExecutor<D>::Places places_;
  std::vector<std::vector<Range>> ranges_;                                 // of each chunk: places of its variables
  std::vector<float> micro_;                                               // gradients of the micro-batch under way
  std::vector<std::size_t> came_;                                          // messages
  std::vector<std::vector<std::unique_ptr<Slot>>> pools_;                  // of each chunk
  std::vector<Range> rows_, micro_rows_;                                   // that were set; of the batch under way
  std::vector<int> pending_;                                               // chunks of each micro-batch
  pipeline::Messages* messages_   = nullptr;
  pipeline::MicroBatchSums* sums_ = nullptr;
  std::vector<float> predicted_;
  typename Kernels<D>::Scratch second_;                                    // a gradient that is added to another
};

}  // namespace chorale::nn::graph
