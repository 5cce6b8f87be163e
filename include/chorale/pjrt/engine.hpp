// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/lowering/step.hpp>
#include <chorale/pjrt/core_memory.hpp>
#include <chorale/pjrt/device/pjrt.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

namespace detail {

inline pjrt::Shape shape_of(Typed const& typed) {
  auto const type = [&] {
    switch (typed.element) {
      case Element::bf16: return pjrt::ElementType::bf16;
      case Element::f16: return pjrt::ElementType::f16;
      case Element::i32: return pjrt::ElementType::s32;
      case Element::u32: return pjrt::ElementType::u32;
      case Element::i1: return pjrt::ElementType::pred;
      default: return pjrt::ElementType::f32;
    }
  }();
  return {type, pjrt::Dims{std::span{typed.dims.data(), typed.dims.size()}}};
}

}  // namespace detail

/// Runs the steps of a model on the cores of a device: compiles a program for each kind and number of rows, deals out
/// the rows of a batch to the cores, and keeps variables and slots there from one step to the next.
///
/// cost      a step copies its batch to the cores, and results of a few numbers back; compiling takes about a second
template <class Net, class Losses, class Optimizer> class Engine {
  using Writer                               = StepWriter<Net, Losses, Optimizer>;
  static constexpr auto const& plan          = Writer::plan;
  static constexpr std::size_t num_variables = plan.variables.size();

 public:
  static constexpr std::size_t num_outputs = graph::OutputsIn<Net>::fields::size;

  /// The sum of all losses over the rows of a batch and, of several losses, each.
  static constexpr std::size_t own_losses = std::tuple_size_v<Losses> > 1 ? std::tuple_size_v<Losses> : 0;
  using LossSums                          = std::array<float, 1 + own_losses>;

  /// variables, slots    memory of the host, laid out by the plan; it outlives the engine
  Engine(Pjrt device, Losses losses, Optimizer rule, Span<float> variables, Span<float> slots)
      : device_{device}, losses_{std::move(losses)}, rule_{std::move(rule)},
        memory_{std::move(device), PlanView{plan}, Optimizer::slots, variables, slots}, inputs_(cores()),
        arguments_(cores()) {
    if (!memory_.in_shards()) return;
    CHORALE_EXPECTS(lowers_update<Optimizer> && !optim::UpdatesByVariable<Optimizer>,
                    "cores with shards of the optimizer's state take rules that update each number by itself and are "
                    "written in operations, and optim::" +
                        type_name<Optimizer>() + " is not one: use optim::AdamW, or all of its state on each core");
    for (auto const& v : plan.variables)
      CHORALE_EXPECTS(!v.spec.by_rows,
                      "cores with shards of the optimizer's state take gradients that are dense, but "
                      "that of " +
                          std::string{std::string_view{v.name}} +
                          " is rows: use nn::Embedding<.., nn::DenseGradient>, or all of its state on "
                          "each core");
  }

  std::size_t cores() const { return device_.cores().size(); }
  CoreMemory& memory() { return memory_; }

  /// Losses and gradients of a batch, sums over its rows; and its outputs, if asked for.
  ///
  /// scale       of the loss whose gradients they are
  /// to          zeros; tables that have no rows
  template <class Batch>
  LossSums gradients(Batch const& batch, StepNumbers const& now, float scale, Gradients const& to, bool outputs) {
    auto& step  = run(StepKind::gradients, batch, {now, {scale}, outputs, false});
    auto copies = std::vector<pjrt::Event>{};
    for (std::size_t i = 0; i < num_variables; ++i)
      if (auto const part = to[i]; !part.empty())
        copies.push_back(step.results[0][i].get_later(part.data(), part.size_bytes()));
    auto const losses = read_losses(step.results[0][num_variables]);
    for (auto& copy : copies) copy.wait();
    auto next = num_variables + 1;
    for (auto& table : to.tables) read_rows(step.results[0][table.variable()], step.results[0][next++], table);
    if (outputs) read_outputs(step, batch.rows, next);
    return losses;
  }

  /// Results of a step with its update, while it is under way.
  struct Update {
    pjrt::Buffer losses;               // of the first core
    std::vector<pjrt::Buffer> faults;  // of each core, see StepWriter
    std::size_t rows = 0;

    LossSums read() const { return read_losses(losses); }
    /// The first variable whose gradient is not finite; their number if all are.
    std::size_t first_bad() const {
      auto all = Faults{};
      faults[0].get(all.data(), sizeof all);
      return static_cast<std::size_t>(std::find_if(all.begin(), all.end() - 1, [](float n) { return n != 0; }) -
                                      all.begin());
    }
  };

  /// Starts a step with its update.
  ///
  /// before      a step under way, without whose update this one must not change anything; else null
  /// checked     true if nothing changes where a number is not finite
  /// outputs     true to wait for the step and read them
  template <class Batch>
  Update update(Batch const& batch, StepNumbers const& now, optim::Moment const& moment, Update* before, bool checked,
                bool outputs) {
    auto numbers = std::vector<float>(1 + UpdateLowering<Optimizer>::scalars);
    numbers[0]   = static_cast<float>(batch.rows);
    UpdateLowering<Optimizer>::numbers(rule_, moment, numbers.data() + 1);
    auto& step      = run(StepKind::update, batch, {now, numbers, outputs, checked, before});
    auto const held = memory_.all(0).size();
    memory_.take(step.results);
    if (outputs) read_outputs(step, batch.rows, held + 2);
    auto made = Update{std::move(step.results[0][held]), {}, batch.rows};
    for (auto& of_core : step.results) made.faults.push_back(std::move(of_core[held + 1]));
    return made;
  }

  /// The losses of a batch as in evaluation, sums over its rows.
  template <class Batch> LossSums evaluate(Batch const& batch, bool outputs) {
    auto& step        = run(StepKind::evaluate, batch, {{}, {}, outputs, false});
    auto const losses = read_losses(step.results[0][0]);
    if (outputs) read_outputs(step, batch.rows, 1);
    return losses;
  }

  /// Computes the outputs of a batch as in evaluation.
  template <class Batch> void predict(Batch const& batch) {
    read_outputs(run(StepKind::predict, batch, {}), batch.rows, 0);
  }

  /// Output o of the rows of the last batch whose outputs were requested: (B, ..).
  Span<float const> output(std::size_t o) const { return outputs_[o]; }

 private:
  /// What a step takes beside its batch.
  ///
  /// numbers   of an update; of gradients the scale of the loss
  struct Settings {
    StepNumbers now{};
    std::vector<float> numbers{};
    bool outputs = false, checked = false;
    Update* before = nullptr;
  };
  using Faults = std::array<float, num_variables + 1>;

  /// A program that was compiled.
  struct Step {
    StepKind kind;
    typename Writer::Settings set;
    std::vector<Typed> arguments;
    std::vector<std::int64_t> ids_below;
    pjrt::Executable executable;
    std::vector<std::vector<pjrt::Buffer>> results{};  // [core][result] of its last run
  };

  /// The program for a batch: one for as many rows, else one with room for more, if that is not much more. A training
  /// step takes any, as a smaller batch is the last of an epoch; of a second one of as many rows in turn, that is not so.
  Step& step_for(StepKind kind, std::size_t rows, bool outputs, bool checked) {
    auto const each   = static_cast<std::int64_t>((rows + cores() - 1) / cores());
    auto const trains = kind == StepKind::gradients || kind == StepKind::update;
    auto wanted       = typename Writer::Settings{.replicas = static_cast<int>(cores()),
                                                  .rows     = each,
                                                  .outputs  = outputs,
                                                  .checked  = checked,
                                                  .sharded  = memory_.in_shards()};
    Step* best        = nullptr;
    auto const again  = trains && std::exchange(rows_trained_, rows) == rows;
    auto const most   = again ? each : trains ? std::numeric_limits<std::int64_t>::max() : 2 * each;
    for (auto const& step : steps_) {
      auto const room = step->set.rows;
      wanted.rows     = room;
      auto const fits = step->kind == kind && step->set == wanted && room >= each && room <= most;
      if (fits && (best == nullptr || room < best->set.rows)) best = step.get();
    }
    if (best != nullptr) return *best;
    wanted.rows    = each;
    auto text      = Writer{losses_, rule_, wanted}.write(kind);
    auto signature = pjrt::Signature{};
    for (auto const& typed : text.arguments) signature.arguments.push_back(detail::shape_of(typed));
    for (auto const& typed : text.results) signature.results.push_back(detail::shape_of(typed));
    signature.donated = text.donated;
    steps_.push_back(std::make_unique<Step>(
        Step{kind, wanted, std::move(text.arguments), std::move(text.ids_below),
             device_.client().compile(std::move(text.text), std::move(signature), wanted.replicas, device_.cores())}));
    return *steps_.back();
  }

  /// Deals out a batch to the cores and starts a program on it.
  template <class Batch> Step& run(StepKind kind, Batch const& batch, Settings const& settings) {
    auto& step      = step_for(kind, batch.rows, settings.outputs, settings.checked);
    auto const held = kind == StepKind::update ? memory_.all(0).size() : num_variables;
    check(batch, step, held, kind != StepKind::predict);
    for (std::size_t core = 0; core < cores(); ++core) {
      auto& in = inputs_[core];
      in.clear();
      auto const next = [&]() -> Typed const& { return step.arguments[held + in.size()]; };
      auto const put  = [&](void const* data) {
        in.push_back(device_.client().put(data, detail::shape_of(next()), device_.cores()[core]));
      };
      auto const mine = rows_of(core, batch.rows, step.set.rows);
      [&]<class... F>(nn::detail::List<F...>) {
        (put_rows(batch[typename graph::WithoutRequest<F>::type{}], batch.rows, mine, step.set.rows, put), ...);
      }(typename Net::inputs{});
      if constexpr (has_targets<Batch>)
        if (kind != StepKind::predict) put_targets(batch, mine, step.set.rows, put);
      real_.assign(static_cast<std::size_t>(step.set.rows), 0.0F);
      std::fill_n(real_.begin(), mine.size(), 1.0F);
      put(real_.data());
      if (kind == StepKind::gradients || kind == StepKind::update) {
        auto const drawn = settings.now.drawn().value;
        auto const words = std::array<std::uint32_t, drawn_numbers>{
            static_cast<std::uint32_t>(drawn), static_cast<std::uint32_t>(drawn >> 32),
            static_cast<std::uint32_t>(settings.now.first_row + mine.begin)};
        put(words.data());
      }
      if (kind == StepKind::update || (kind == StepKind::gradients && optim::scales_loss<Optimizer>))
        put(settings.numbers.data());
      arguments_[core].clear();
      for (std::size_t i = 0; i < held; ++i) arguments_[core].push_back(&memory_.variables(core)[i]);
      if (kind == StepKind::update && settings.checked && settings.before == nullptr) put(Faults{}.data());
      for (auto& buffer : in) arguments_[core].push_back(&buffer);
      if (settings.before != nullptr) arguments_[core].push_back(&settings.before->faults[core]);
    }
    try {
      step.executable.run(arguments_, step.results);
    } catch (...) {
      memory_.lost();
      throw;
    }
    return step;
  }

  template <class Batch, class... Term> static constexpr bool has_all(std::type_identity<std::tuple<Term...>>) {
    return (requires(Batch const& b) { b[typename Term::field{}]; } && ...);
  }
  template <class Batch> static constexpr bool has_targets = has_all<Batch>(std::type_identity<Losses>{});

  /// Refuses a batch of other sizes, ids that a table has no row for, and targets that a loss does not take.
  ///
  /// first     argument of the first input
  template <class Batch> void check(Batch const& batch, Step const& step, std::size_t first, bool targets) const {
    [&]<class... F>(nn::detail::List<F...>) {
      (check_field(typename graph::WithoutRequest<F>::type{}, batch, step.ids_below[first++]), ...);
    }(typename Net::inputs{});
    if constexpr (has_targets<Batch>)
      if (targets) std::apply([&](auto const&... term) { (check_targets(term, batch), ...); }, losses_);
  }
  template <class Term, class Batch> static void check_targets(Term const& term, Batch const& batch) {
    using F = typename Term::field;
    using O = typename graph::Nth<graph::index_of<F, typename graph::OutputsIn<Net>::fields>,
                                  typename graph::OutputsIn<Net>::values>::type;
    using C = graph::Compared<decltype(Term::what), O, F>;
    check_field(F{}, batch, 0);
    loss::check_targets(term.what, batch.rows * C::positions, C::width, batch[F{}].data());
  }
  template <class F, class Batch> static void check_field(F field, Batch const& batch, std::int64_t below) {
    auto const numbers   = batch[field];
    constexpr bool named = !requires { typename Net::sequential; };
    CHORALE_EXPECTS(numbers.size() == batch.rows * F::size,
                    "the model takes " + std::to_string(F::size) + " numbers a row" +
                        (named ? " of field " + type_name<F>() : std::string{}) + ", " +
                        std::to_string(batch.rows * F::size) + " for " + std::to_string(batch.rows) +
                        " rows, but the batch has " + std::to_string(numbers.size()));
    if constexpr (std::is_integral_v<typename F::element_type>)
      for (std::size_t i = 0; below != 0 && i < numbers.size(); ++i)
        if (numbers[i] < 0 || numbers[i] >= below)
          nn::detail::throw_unknown_id(static_cast<int>(numbers[i]), static_cast<int>(below), i / F::size, i % F::size,
                                       &type_name<F>);
  }

  template <class Batch> void put_targets(Batch const& batch, Range mine, std::int64_t rows, auto const& put) {
    std::apply([&](auto const&... term) { (put_targets_of(term, batch, mine, rows, put), ...); }, losses_);
  }
  template <class Term, class Batch>
  void put_targets_of(Term const&, Batch const& batch, Range mine, std::int64_t rows, auto const& put) {
    put_rows(batch[typename Term::field{}], batch.rows, mine, rows, put);
    if constexpr (!std::is_void_v<typename Term::row_weight>)
      put_rows(batch[typename Term::row_weight{}], batch.rows, mine, rows, put);
  }

  /// The rows of a batch that a core has.
  static Range rows_of(std::size_t core, std::size_t rows, std::int64_t each) {
    auto const n = static_cast<std::size_t>(each);
    return {std::min(rows, core * n), std::min(rows, (core + 1) * n)};
  }

  /// Copies rows of a field to a core, with zeros in place of missing rows.
  template <class T> void put_rows(Span<T> all, std::size_t rows, Range mine, std::int64_t room, auto const& put) {
    using Number            = std::remove_const_t<T>;
    auto const width        = rows == 0 ? std::size_t{0} : all.size() / rows;
    auto const part         = all.subspan(mine.begin * width, mine.size() * width);
    constexpr bool as_it_is = std::is_same_v<Number, float> || std::is_same_v<Number, int>;
    if (as_it_is && mine.size() == static_cast<std::size_t>(room)) return put(part.data());
    auto const n = static_cast<std::size_t>(room) * width;
    if constexpr (std::is_integral_v<Number>) {
      ids_.assign(n, 0);
      std::ranges::transform(part, ids_.begin(), [](auto id) { return static_cast<int>(id); });
      put(ids_.data());
    } else {
      floats_.assign(n, 0.0F);
      std::ranges::transform(part, floats_.begin(), [](auto x) { return static_cast<float>(x); });
      put(floats_.data());
    }
  }

  static LossSums read_losses(pjrt::Buffer const& from) {
    auto sums = LossSums{};
    from.get(sums.data(), sizeof sums);
    return sums;
  }
  /// Reads those rows of the gradient of a table that are in use.
  void read_rows(pjrt::Buffer const& gradient, pjrt::Buffer const& used, RowGradients& to) {
    floats_.resize(gradient.shape().elements());
    real_.resize(used.shape().elements());
    gradient.get(floats_.data(), floats_.size() * sizeof(float));
    used.get(real_.data(), real_.size() * sizeof(float));
    for (std::size_t r = 0; r < real_.size(); ++r)
      if (real_[r] != 0) to.add(r, floats_.data() + r * to.width());
  }
  /// Reads the outputs of all cores, which are the results from `first` on, without rows that are not of the batch.
  void read_outputs(Step const& step, std::size_t rows, std::size_t first) {
    for (std::size_t o = 0; o < num_outputs; ++o) {
      auto const n     = step.results[0][first + o].shape().elements();
      auto const width = n / static_cast<std::size_t>(step.set.rows);
      outputs_[o].resize(n * cores());
      for (std::size_t core = 0; core < cores(); ++core)
        step.results[core][first + o].get(outputs_[o].data() + core * n, n * sizeof(float));
      outputs_[o].resize(rows * width);  // what fills up is last
    }
  }

  Pjrt device_;
  Losses losses_;
  Optimizer rule_;
  CoreMemory memory_;
  std::vector<std::vector<pjrt::Buffer>> inputs_;  // [core][argument]
  std::vector<std::vector<pjrt::Buffer*>> arguments_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::size_t rows_trained_ = 0;  // of the last training step
  std::vector<float> real_, floats_;
  std::vector<int> ids_;
  std::array<std::vector<float>, num_outputs> outputs_;
};

}  // namespace chorale::nn::stablehlo
