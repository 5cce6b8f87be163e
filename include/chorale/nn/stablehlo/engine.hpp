// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/pjrt.hpp>
#include <chorale/nn/embedding.hpp>
#include <chorale/nn/stablehlo/step.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>
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
/// keeps     the host's memory and the cores have the variables and slots. Either is newer at times: bring_back() and
///           changed_on_host() say so
/// cost      a step copies its batch to the cores, and results of a few numbers back; compiling takes about a second
template <class Net, class Losses, class Optimizer>
class Engine {
  using Writer                     = StepWriter<Net, Losses, Optimizer>;
  static constexpr auto const& plan = Writer::plan;
  static constexpr std::size_t num_variables = plan.variables.size();

 public:
  static constexpr std::size_t num_outputs = graph::OutputsIn<Net>::fields::size;

  /// The sum of all losses over the rows of a batch and, of several losses, each.
  static constexpr std::size_t own_losses = std::tuple_size_v<Losses> > 1 ? std::tuple_size_v<Losses> : 0;
  using LossSums                          = std::array<float, 1 + own_losses>;

  /// variables, slots    memory of the host, laid out by the plan; it outlives the engine
  Engine(Pjrt device, Losses losses, Optimizer rule, Span<float> variables, Span<float> slots)
      : device_{std::move(device)}, losses_{std::move(losses)}, rule_{std::move(rule)}, variables_{variables},
        slots_{slots}, held_(cores()), inputs_(cores()), arguments_(cores()) {
    for (auto const& v : plan.variables) trained_ += v.spec.trained() ? 1 : 0;
    if (!sharded()) return;
    CHORALE_EXPECTS(lowers_update<Optimizer> && !optim::UpdatesByVariable<Optimizer>,
                    "cores with shards of the optimizer's state take rules that update each number by itself and are "
                    "written in operations, and optim::" + type_name<Optimizer>() +
                        " is not one: use optim::AdamW, or all of its state on each core");
    for (auto const& v : plan.variables)
      CHORALE_EXPECTS(!v.spec.by_rows, "cores with shards of the optimizer's state take gradients that are dense, but that "
                                       "of " + std::string{std::string_view{v.name}} +
                                           " is rows: use nn::Embedding<.., nn::DenseGradient>, or Zero::none");
  }

  std::size_t cores() const { return device_.cores().size(); }
  Losses const& losses() const { return losses_; }

  /// Says that the host has changed variables or slots, which the cores take over before they compute next.
  void changed_on_host() { newest_ = Newest::host; }

  /// Copies variables and slots to the host, if those of the cores are newer.
  void bring_back() {
    if (newest_ != Newest::cores) return;
    auto copies = std::vector<pjrt::Event>{};
    each_held([&](std::size_t i, Span<float> host) {
      copies.push_back(held_[0][i].get_later(host.data(), host.size_bytes()));
    });
    for (auto& copy : copies) copy.wait();
    if (sharded()) each_sharded([&](std::size_t i, std::vector<float>& all, std::size_t shard) {
      for (std::size_t core = 0; core < cores(); ++core)
        held_[core][i].get(all.data() + core * shard, shard * sizeof(float));
      each_slot(i - num_variables, [&](Span<float> host, std::size_t at) { std::copy_n(all.data() + at, host.size(), host.data()); });
    });
    newest_ = Newest::both;
  }

  /// Losses and gradients of a batch, sums over its rows; and its outputs, if asked for.
  ///
  /// to          zeros; tables that have no rows
  template <class Batch>
  LossSums gradients(Batch const& batch, StepNumbers const& now, Gradients const& to, bool outputs) {
    auto& step = run(StepKind::gradients, batch, {now, {}, outputs, false});
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

  /// What an update gives back, while it is under way.
  struct Update {
    pjrt::Buffer losses, bad;                                              // of the first core
    std::size_t rows = 0;

    LossSums read() const { return read_losses(losses); }
    /// The first variable whose gradient is not finite; their number if all are.
    std::size_t first_bad() const {
      auto bad_numbers = std::vector<float>(num_variables);
      bad.get(bad_numbers.data(), bad_numbers.size() * sizeof(float));
      return static_cast<std::size_t>(
          std::ranges::find_if(bad_numbers, [](float n) { return n != 0; }) - bad_numbers.begin());
    }
  };

  /// Starts a step with its update.
  ///
  /// checked     true if nothing changes where a number is not finite
  /// outputs     true to wait for the step and read them
  template <class Batch>
  Update update(Batch const& batch, StepNumbers const& now, optim::Moment const& moment, bool checked, bool outputs) {
    auto numbers = std::vector<float>(1 + UpdateLowering<Optimizer>::scalars);
    numbers[0]   = static_cast<float>(batch.rows);
    UpdateLowering<Optimizer>::numbers(rule_, moment, numbers.data() + 1);
    auto& step        = run(StepKind::update, batch, {now, numbers, outputs, checked});
    auto const moved  = num_variables + num_slots();
    for (std::size_t core = 0; core < cores(); ++core)
      for (std::size_t i = 0; i < moved; ++i) held_[core][i] = std::move(step.results[core][i]);
    newest_ = Newest::cores;
    if (outputs) read_outputs(step, batch.rows, moved + 2);
    return {std::move(step.results[0][moved]), std::move(step.results[0][moved + 1]), batch.rows};
  }

  /// The losses of a batch as in evaluation, sums over its rows.
  template <class Batch>
  LossSums evaluate(Batch const& batch, bool outputs) {
    auto& step        = run(StepKind::evaluate, batch, {{}, {}, outputs, false});
    auto const losses = read_losses(step.results[0][0]);
    if (outputs) read_outputs(step, batch.rows, 1);
    return losses;
  }

  /// Computes the outputs of a batch as in evaluation.
  template <class Batch>
  void predict(Batch const& batch) {
    read_outputs(run(StepKind::predict, batch, {}), batch.rows, 0);
  }

  /// Output o of the rows of the last batch of which outputs were asked for: (B, ..).
  Span<float const> output(std::size_t o) const { return outputs_[o]; }

  /// True if all cores have the same bits of all variables, and of slots that each of them has.
  bool cores_agree() {
    send_held();
    auto first = std::vector<float>{}, other = std::vector<float>{};
    for (std::size_t i = 0; i < (sharded() ? num_variables : held_[0].size()); ++i) {
      auto const bytes = held_[0][i].shape().bytes();
      first.resize(bytes / sizeof(float)), other.resize(first.size());
      held_[0][i].get(first.data(), bytes);
      for (std::size_t core = 1; core < cores(); ++core) {
        held_[core][i].get(other.data(), bytes);
        if (std::memcmp(first.data(), other.data(), bytes) != 0) return false;
      }
    }
    return true;
  }

 private:
  enum class Newest { host, both, cores };

  /// What a step takes beside its batch.
  struct Settings {
    StepNumbers now{};
    std::vector<float> numbers{};
    bool outputs = false, checked = false;
  };

  /// A program that was compiled.
  struct Step {
    StepKind kind;
    typename Writer::Settings set;
    std::vector<Typed> arguments;
    std::vector<std::int64_t> ids_below;
    pjrt::Executable executable;
    std::vector<std::vector<pjrt::Buffer>> results{};                      // [core][result] of its last run
  };

  bool sharded() const { return device_.shards_slots() && cores() > 1; }
  std::size_t num_slots() const { return (sharded() ? 1 : trained_) * static_cast<std::size_t>(Optimizer::slots); }

  /// Calls f(index, memory of the host) for each variable, and each slot of a trained one that each core has.
  void each_held(auto&& f) {
    auto i = std::size_t{0};
    for (auto const& v : plan.variables) f(i++, variables_.subspan(v.offset, v.size));
    for (std::size_t s = 0; s < static_cast<std::size_t>(Optimizer::slots) && !sharded(); ++s)
      each_slot(s, [&](Span<float> host, std::size_t) { f(i++, host); });
  }
  /// Calls f(memory of the host, place among all trained variables) for slot s of each of them.
  void each_slot(std::size_t s, auto&& f) {
    auto at = std::size_t{0};
    for (auto const& v : plan.variables) {
      if (!v.spec.trained()) continue;
      f(slots_.subspan(s * PlanView{plan}.slot_stride() + v.slot_offset(), v.size), at);
      at += v.size;
    }
  }
  /// Calls f(index, room for all shards, elements of one) for each slot of which cores have shards.
  void each_sharded(auto&& f) {
    auto const shard = static_cast<std::size_t>(Writer::shard_of(static_cast<int>(cores())));
    auto all         = std::vector<float>(shard * cores());
    for (std::size_t s = 0; s < static_cast<std::size_t>(Optimizer::slots); ++s) f(num_variables + s, all, shard);
  }
  /// Copies variables and slots to the cores, if those of the host are newer.
  void send_held() {
    if (newest_ != Newest::host) return;
    auto const shapes = held_shapes();
    for (std::size_t core = 0; core < cores(); ++core) {
      held_[core].clear();
      each_held([&](std::size_t i, Span<float> host) {
        held_[core].push_back(device_.client().put(host.data(), shapes[i], device_.cores()[core]));
      });
    }
    if (sharded()) each_sharded([&](std::size_t i, std::vector<float>& all, std::size_t shard) {
      each_slot(i - num_variables, [&](Span<float> host, std::size_t at) { std::copy_n(host.data(), host.size(), all.data() + at); });
      for (std::size_t core = 0; core < cores(); ++core)
        held_[core].push_back(device_.client().put(all.data() + core * shard, pjrt::shape_of<float>({static_cast<std::int64_t>(shard)}),
                                                   device_.cores()[core]));
    });
    newest_ = Newest::both;
  }
  std::vector<pjrt::Shape> held_shapes() const {
    auto shapes     = std::vector<pjrt::Shape>{};
    auto const take = [&](bool trained_alone) {
      for (auto const& v : plan.variables)
        if (v.spec.trained() || !trained_alone) shapes.push_back(detail::shape_of({Element::f32, Writer::dims_of(v.spec)}));
    };
    take(false);
    for (int s = 0; s < Optimizer::slots && !sharded(); ++s) take(true);
    return shapes;
  }

  /// The program for a batch: one for as many rows, else one with room for more, if that is not much more. A training
  /// step takes any: its smaller batches are the last of each epoch.
  Step& step_for(StepKind kind, std::size_t rows, bool outputs, bool checked) {
    auto const each   = static_cast<std::int64_t>((rows + cores() - 1) / cores());
    auto const trains = kind == StepKind::gradients || kind == StepKind::update;
    auto wanted       = typename Writer::Settings{.replicas = static_cast<int>(cores()), .rows = each, .outputs = outputs,
                                                  .checked = checked, .sharded = sharded()};
    Step* best        = nullptr;
    for (auto const& step : steps_) {
      auto const room = step->set.rows;
      wanted.rows     = room;
      auto const fits = step->kind == kind && step->set == wanted && room >= each && (trains || room <= 2 * each);
      if (fits && (best == nullptr || room < best->set.rows)) best = step.get();
    }
    if (best != nullptr) return *best;
    wanted.rows    = each;
    auto text      = Writer{losses_, rule_, wanted}.write(kind);
    auto signature = pjrt::Signature{};
    for (auto const& typed : text.arguments) signature.arguments.push_back(detail::shape_of(typed));
    for (auto const& typed : text.results) signature.results.push_back(detail::shape_of(typed));
    signature.donated = text.donated;
    steps_.push_back(std::make_unique<Step>(Step{
        kind, wanted, std::move(text.arguments), std::move(text.ids_below),
        device_.client().compile(std::move(text.text), std::move(signature), wanted.replicas, device_.cores())}));
    return *steps_.back();
  }

  /// Deals out a batch to the cores and starts a program on it.
  template <class Batch>
  Step& run(StepKind kind, Batch const& batch, Settings const& settings) {
    send_held();
    auto& step      = step_for(kind, batch.rows, settings.outputs, settings.checked);
    auto const held = kind == StepKind::update ? num_variables + num_slots() : num_variables;
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
      if (kind == StepKind::update) put(settings.numbers.data());
      arguments_[core].clear();
      for (std::size_t i = 0; i < held; ++i) arguments_[core].push_back(&held_[core][i]);
      for (auto& buffer : in) arguments_[core].push_back(&buffer);
    }
    step.executable.run(arguments_, step.results);
    return step;
  }

  template <class Batch, class... Term>
  static constexpr bool has_all(std::type_identity<std::tuple<Term...>>) {
    return (requires(Batch const& b) { b[typename Term::field{}]; } && ...);
  }
  template <class Batch>
  static constexpr bool has_targets = has_all<Batch>(std::type_identity<Losses>{});

  /// Refuses a batch of other sizes, ids that a table has no row for, and targets that a loss does not take.
  ///
  /// first     argument of the first input
  template <class Batch>
  void check(Batch const& batch, Step const& step, std::size_t first, bool targets) const {
    [&]<class... F>(nn::detail::List<F...>) {
      (check_field(typename graph::WithoutRequest<F>::type{}, batch, step.ids_below[first++]), ...);
    }(typename Net::inputs{});
    if constexpr (has_targets<Batch>)
      if (targets) std::apply([&](auto const&... term) { (check_targets(term, batch), ...); }, losses_);
  }
  template <class Term, class Batch>
  static void check_targets(Term const& term, Batch const& batch) {
    using F = typename Term::field;
    using O = typename graph::Nth<graph::index_of<F, typename graph::OutputsIn<Net>::fields>,
                                  typename graph::OutputsIn<Net>::values>::type;
    using C = graph::Compared<decltype(Term::what), O, F>;
    check_field(F{}, batch, 0);
    loss::check_targets(term.what, batch.rows * C::positions, C::width, batch[F{}].data());
  }
  template <class F, class Batch>
  static void check_field(F field, Batch const& batch, std::int64_t below) {
    auto const numbers = batch[field];
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

  template <class Batch>
  void put_targets(Batch const& batch, Range mine, std::int64_t rows, auto const& put) {
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

  /// Copies rows of a field to a core, with zeros in place of those that are missing.
  template <class T>
  void put_rows(Span<T> all, std::size_t rows, Range mine, std::int64_t room, auto const& put) {
    using Number     = std::remove_const_t<T>;
    auto const width = rows == 0 ? std::size_t{0} : all.size() / rows;
    auto const part  = all.subspan(mine.begin * width, mine.size() * width);
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
      auto const n = step.results[0][first + o].shape().elements();
      auto const width = n / static_cast<std::size_t>(step.set.rows);
      outputs_[o].resize(n * cores());
      for (std::size_t core = 0; core < cores(); ++core)
        step.results[core][first + o].get(outputs_[o].data() + core * n, n * sizeof(float));
      outputs_[o].resize(rows * width);                                    // what fills up is last
    }
  }

  Pjrt device_;
  Losses losses_;
  Optimizer rule_;
  Span<float> variables_, slots_;
  std::size_t trained_ = 0;
  Newest newest_       = Newest::host;
  std::vector<std::vector<pjrt::Buffer>> held_, inputs_;                   // [core][argument]
  std::vector<std::vector<pjrt::Buffer*>> arguments_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<float> real_, floats_;
  std::vector<int> ids_;
  std::array<std::vector<float>, num_outputs> outputs_;
};

}  // namespace chorale::nn::stablehlo
