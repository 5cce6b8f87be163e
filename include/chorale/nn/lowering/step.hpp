// SPDX-License-Identifier: Apache-2.0
//
// Whole steps of a model as programs: what they take, what they give, and their text.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/data/field.hpp>
#include <chorale/model/parameter_groups.hpp>
#include <chorale/nn/engine/ragged_inputs.hpp>
#include <chorale/nn/lowering/gradient.hpp>
#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/lowering/losses.hpp>
#include <chorale/nn/lowering/network.hpp>
#include <chorale/nn/lowering/optimizers.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/lowering/text.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

/// The dimensions of a variable.
inline Dims dims_of(VariableSpec const& spec) {
  auto dims = Dims{};
  for (int i = 0; i < spec.rank; ++i) dims.push_back(spec.dims[static_cast<std::size_t>(i)]);
  return dims;
}

/// Elements of one of so many shards of all trained variables; the last one is filled up with zeros.
inline std::int64_t shard_of_trained(PlanView const& plan, int shards) {
  auto all = std::int64_t{0};
  for (auto const& v : plan.variables) all += v.spec.trained() ? static_cast<std::int64_t>(v.size) : 0;
  return (all + shards - 1) / shards;
}

/// Element type and dimensions of an argument or a result.
struct Typed {
  Element element = Element::f32;
  Dims dims{};

  friend bool operator==(Typed const&, Typed const&) = default;
};

/// A program of one step, ready for a compiler.
struct StepText {
  std::string text;
  std::vector<Typed> arguments, results;
  std::vector<std::size_t> donated;     // arguments whose memory results take over
  std::vector<std::int64_t> ids_below;  // of each argument of ids, the rows of the
                                        // smallest table that they are read from;
                                        // or 0
};

/// What a step computes.
///
///   gradients   loss, and the sums of gradients over the rows of all replicas
///   update      loss, and the variables and slots after an update by these gradients
///   evaluate    loss, as in evaluation
///   predict     outputs
enum class StepKind : unsigned char { gradients, update, evaluate, predict };

/// The numbers of a step that change from one to the next, as arguments.
///
///   drawn     (3) u32: low and high word of StepNumbers::drawn(), first row of this replica in the global batch
///   numbers   (1 + n) f32: rows of the global batch, then the numbers of UpdateLowering
inline constexpr std::int64_t drawn_numbers = 3;

/// Writes the steps of a network with losses and an update rule.
///
///   arguments   variables │ slots of trained variables, one after the other │ inputs │ targets and weights of rows, of
///               each loss in turn │ real rows │ drawn │ numbers │ faults of the step before, or zeros
///               an update has all, but without checks no faults; gradients ends with drawn, or, of a rule that scales the
///               loss, with the scale, and has no slots; evaluate ends with real rows; predict has no targets either
///   results     update: variables │ slots │ losses │ faults
///               gradients: gradients │ losses │ rows in use of each table: (V), 0 if no row of the batch reads one
///               evaluate: losses;  then, of all that ask for them, outputs of this replica
///   faults      (variables + 1): how many numbers of each gradient are not finite, then the faults of the loss and
///               of the step before. With checks, nothing changes unless all are 0
///   losses      (1 + n): their sum and, of several losses, each
///   slots       of sharded ones, one vector each: this replica's shard of all trained variables, one after the other
///
/// keeps         gradients and losses are sums over the real rows of all replicas, equal on each; gradients come from
///               the scaled loss
template <class Net, class Losses, class Optimizer> class StepWriter {
  template <class Term>
  static constexpr std::size_t output_of =
      graph::index_of<typename Term::field, typename graph::OutputsIn<Net>::fields>;

 public:
  static constexpr auto const& plan = graph::plan_for<Net>();

  /// What of a step is not said by its types.
  ///
  /// rows        of the batch that each replica has room for
  /// outputs     true if the results end with them; predict always has them
  /// checked     true if an update changes nothing where a gradient or the loss is not finite
  /// sharded     true if each replica has the slots of a shard of all variables, and updates it
  struct Settings {
    int replicas      = 1;
    std::int64_t rows = 0;
    bool outputs = false, checked = false, sharded = false;

    friend bool operator==(Settings const&, Settings const&) = default;
  };

  StepWriter(Losses const& losses, Optimizer const& rule, Settings const& settings)
      : losses_{&losses}, rule_{&rule}, set_{settings}, program_{settings.replicas, graph::products_of<Net>()} {}

  StepText write(StepKind kind) {
    auto const trains = kind == StepKind::gradients || kind == StepKind::update;
    auto variables    = std::vector<Value>{};
    for (auto const& v : plan.variables) variables.push_back(argument(Element::f32, dims_of(v.spec)));
    if (kind == StepKind::update) take_slots();
    auto inputs = std::vector<Value>{};
    [&]<class... F>(nn::detail::List<F...>) { (inputs.push_back(field<F>()), ...); }(typename Net::inputs{});
    if (kind != StepKind::predict) take_targets();
    auto const real    = argument(Element::f32, {set_.rows});
    auto const drawn   = trains ? take_drawn() : Drawn{};
    auto const groups  = chorale::detail::GroupsOf<Optimizer>{*rule_, PlanView{plan}};
    auto const written = write_network<Net>(program_, inputs, variables, trains, real, drawn, groups.are_frozen());
    if (kind != StepKind::predict) {
      auto const losses = losses_of(written.outputs, real);
      if (trains) find_used(variables, real);
      if (trains) train(kind, variables, written, scaled(losses[0]));
      give(all_reduce(in_row(losses)));
    }
    if (kind == StepKind::update) give(faults_);
    if (kind == StepKind::gradients)
      for (auto const used : used_)
        if (used) give(used);
    if (set_.outputs || kind == StepKind::predict)
      for (auto const output : written.outputs) give(output);
    find_ids();
    made_.text = text_of(program_, results_);
    return std::move(made_);
  }

 private:
  Value argument(Element element, Dims const& dims) {
    made_.arguments.push_back({element, dims});
    return program_.parameter(element, dims);
  }
  void give(Value value, int donated_by = -1) {
    made_.results.push_back({value.element(), value.dims()});
    results_.push_back({value, donated_by});
    if (donated_by >= 0) made_.donated.push_back(static_cast<std::size_t>(donated_by));
  }

  /// Once for all fields of a network.
  static constexpr void refuse_ragged() {
    static_assert(!graph::has_ragged(graph::Traced<Net, graph::NoDevice>::calls),
                  "chorale: a network with rows of different lengths does not compute on PJRT devices. Give its fields "
                  "one length, or use a strategy over Cpu");
  }
  template <class F> Value field() {
    using Field = typename graph::WithoutRequest<F>::type;
    if constexpr (Field::is_ragged) refuse_ragged();
    constexpr bool ids = std::is_integral_v<typename Field::element_type>;
    return argument(ids ? Element::i32 : Element::f32, stablehlo::dims_of<Field>(set_.rows));
  }
  void take_slots() {
    for (int s = 0; s < Optimizer::slots; ++s) {
      if (set_.sharded) {
        slots_.push_back(argument(Element::f32, {shard_of_trained(PlanView{plan}, set_.replicas)}));
        continue;
      }
      for (auto const& v : plan.variables)
        if (v.spec.trained()) slots_.push_back(argument(Element::f32, dims_of(v.spec)));
    }
  }
  void take_targets() {
    std::apply([&](auto const&... term) { (take_targets_of(term), ...); }, *losses_);
  }
  template <class Term> void take_targets_of(Term const&) {
    targets_.push_back(field<typename Term::field>());
    if constexpr (!std::is_void_v<typename Term::row_weight>) targets_.push_back(field<typename Term::row_weight>());
  }
  Drawn take_drawn() {
    auto const all  = argument(Element::u32, {drawn_numbers});
    auto const word = [&](std::int64_t i) { return reshape(slice_of(all, 0, i, i + 1), {}); };
    return {word(0), word(1), word(2)};
  }

  /// The loss whose gradients a step gives.
  Value scaled(Value loss) {
    if constexpr (optim::scales_loss<Optimizer>) return loss * argument(Element::f32, {});
    else return loss;
  }

  /// The sum of all losses over the rows of this replica and, of several, each.
  std::vector<Value> losses_of(std::vector<Value> const& outputs, Value real) {
    auto each = std::vector<Value>{};
    auto at   = targets_.begin();
    std::apply([&](auto const&... term) { (each.push_back(loss_of(term, outputs, at, real)), ...); }, *losses_);
    if (each.size() == 1) return each;
    auto all = std::vector<Value>{each[0]};
    for (std::size_t i = 1; i < each.size(); ++i) all[0] = all[0] + each[i];
    all.insert(all.end(), each.begin(), each.end());
    return all;
  }

  /// The sum of one loss; `at` moves to the targets of the next one.
  template <class Term>
  static Value loss_of(Term const& term, std::vector<Value> const& outputs, auto& at, Value real) {
    auto const targets = *at++;
    auto weights       = Value{};
    if constexpr (!std::is_void_v<typename Term::row_weight>) weights = *at++;
    return term_sum<Net>(term, outputs[output_of<Term>], targets, weights, real);
  }

  /// Scalars as one vector.
  static Value in_row(std::vector<Value> const& scalars) {
    auto each = std::vector<Value>{};
    for (auto const x : scalars) each.push_back(reshape(x, {1}));
    return concatenate(each, 0);
  }

  /// Finds which arguments are ids of rows, as they are or moved about. Where ids are cut into parts for
  /// several tables, the table of a part is not known: all ids are below the rows of the largest table.
  void find_ids() {
    auto whole = std::vector<std::int64_t>(made_.arguments.size(), 0), parts = whole;
    auto const& parameters = program_.parameters();
    for (auto const& o : program_.operations()) {
      if (o.kind != Kind::gather) continue;
      auto const rows = program_.at(o.in[0]).dims[0];
      auto from       = std::vector<std::pair<int, bool>>{{o.in[1], false}};  // a value, and if it is cut
      while (!from.empty()) {
        auto const [id, cut] = from.back();
        from.pop_back();
        auto const& source = program_.at(id);
        auto const moves   = source.kind == Kind::reshape || source.kind == Kind::transpose ||
                           source.kind == Kind::slice || source.kind == Kind::concatenate ||
                           source.kind == Kind::broadcast || source.kind == Kind::stop;
        if (moves)
          for (auto const x : source.in) from.push_back({x, cut || source.kind == Kind::slice});
        if (source.kind != Kind::parameter) continue;
        auto const at = static_cast<std::size_t>(std::ranges::find(parameters, id) - parameters.begin());
        if (cut) parts[at] = std::max(parts[at], rows);
        else whole[at] = whole[at] == 0 ? rows : std::min(whole[at], rows);
      }
    }
    made_.ids_below = std::move(whole);
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (made_.ids_below[i] == 0) made_.ids_below[i] = parts[i];
  }

  /// For each variable whose gradient is rows, counts how often the batch reads each of its rows.
  void find_used(std::vector<Value> const& variables, Value real) {
    used_.resize(variables.size());
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (!plan.variables[i].spec.by_rows) continue;
      auto const rows = variables[i].dim(0);
      auto sum        = program_.constant(0, {rows});
      auto all        = std::vector<Value>{};  // ids by which rows are read
      for (auto const& o : program_.operations())
        if (o.kind == Kind::gather && o.in[0] == variables[i].id) all.push_back({&program_, o.in[1]});
      for (auto const ids : all) {
        auto dims = ids.dims();
        dims.push_back(1);
        auto const ones = broadcast(real, dims, {0});
        sum             = sum + reshape(scatter(ones, ids, rows), {rows});
      }
      used_[i] = all_reduce(sum);
    }
  }

  /// Gives gradients, or the variables and slots that an update by them makes.
  void train(StepKind kind, std::vector<Value> const& variables, Written const& written, Value loss) {
    auto trained = std::vector<Value>{};
    for (std::size_t i = 0; i < variables.size(); ++i)
      if (plan.variables[i].spec.trained()) trained.push_back(variables[i]);
    auto const by_trained = stablehlo::gradients(loss, trained);
    auto all              = std::vector<Value>{};
    auto next             = std::size_t{0};
    auto const in_shards  = kind == StepKind::update && set_.sharded;  // each replica gets the sums of its shard
    for (std::size_t i = 0; i < variables.size(); ++i) {
      auto const trains = plan.variables[i].spec.trained();
      auto const own    = trains ? by_trained[next++] : written.moved[i];
      CHORALE_EXPECTS(own, "variable " + std::string{std::string_view{plan.variables[i].name}} +
                               " is not trained, and its layer's nn::stablehlo::Lowering does not say in Call::moved "
                               "what it moves to");
      all.push_back(trains && in_shards ? own : all_reduce(own));
    }
    if (kind == StepKind::gradients)
      for (auto const gradient : all) give(gradient);
    else if constexpr (lowers_update<Optimizer>) {
      if (!in_shards) update(variables, all, all_reduce(loss));
      else if constexpr (!optim::UpdatesByVariable<Optimizer>) update_shard(variables, all, all_reduce(loss));
    }
  }

  void update(std::vector<Value> const& variables, std::vector<Value> const& sums, Value loss) {
    using Rule         = UpdateLowering<Optimizer>;
    auto const numbers = take_numbers();
    auto const rows = numbers.rows, scalars = numbers.of_rule;
    auto means = std::vector<Value>{};
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (plan.variables[i].spec.trained()) means.push_back(sums[i] / along_last(rows, sums[i]));
    auto const clipped = stablehlo::clipped(means, static_cast<double>(rule_->global_clipnorm));
    auto const good    = find_faults(bad_of(sums), loss);
    auto const kept    = [&](std::size_t variable, Value made, Value before) {
      if (auto const used = used_[variable]) made = select(along_first(compare(used, "GT", 0), made), made, before);
      return set_.checked ? select(along_last(good, made), made, before) : made;
    };
    auto const count = clipped.size();
    auto slots       = std::vector<Value>(slots_);
    auto next        = std::size_t{0};
    for (std::size_t i = 0; i < variables.size(); ++i) {
      auto made = Value{};
      if (plan.variables[i].spec.trained()) {
        auto own = std::vector<Value>{};
        for (std::size_t s = 0; s < static_cast<std::size_t>(Optimizer::slots); ++s)
          own.push_back(slots_[s * count + next]);
        made = Rule::write(*rule_, variables[i], clipped[next], own, scalars);
        for (std::size_t s = 0; s < own.size(); ++s)
          slots[s * count + next] = kept(i, own[s], slots_[s * count + next]);
        ++next;
      } else {
        made = moved(plan.variables[i].spec.movement(), variables[i], sums[i], rows);
      }
      give(kept(i, made, variables[i]), static_cast<int>(i));
    }
    for (std::size_t s = 0; s < slots.size(); ++s) give(slots[s], static_cast<int>(variables.size() + s));
  }

  /// The update of this replica's shard of all trained variables, which replicas then exchange.
  ///
  /// own    gradients of trained variables over the rows of this replica alone
  void update_shard(std::vector<Value> const& variables, std::vector<Value> const& own, Value loss) {
    using Rule         = UpdateLowering<Optimizer>;
    auto const numbers = take_numbers();
    auto const rows = numbers.rows, scalars = numbers.of_rule;
    auto const n = shard_of_trained(PlanView{plan}, set_.replicas), whole = n * set_.replicas;
    auto const mean = [&] {
      auto const sums = reduce_scatter(in_one(own, whole));
      return sums / along_last(rows, sums);
    }();
    auto const me      = reshape(convert(program_.replica(), Element::i32), {1});
    auto const mine    = reshape(gather(reshape(in_one(variables, whole), {set_.replicas, n}), me), {n});
    auto const clipped = stablehlo::clipped({mean}, static_cast<double>(rule_->global_clipnorm), true)[0];
    auto const bad     = all_reduce(bad_of(own));
    auto const here    = sum(bad_number(mean));  // of sums, each of them finite
    auto const good    = find_faults(bad + along_last(all_reduce(here), bad), loss);
    auto const kept    = [&](Value made, Value before) {
      return set_.checked ? select(along_last(good, made), made, before) : made;
    };
    auto slots       = std::vector<Value>(slots_);
    auto const made  = kept(Rule::write(*rule_, mine, clipped, slots, scalars), mine);
    auto const every = all_gather(made);
    auto at          = std::int64_t{0};
    for (std::size_t i = 0; i < variables.size(); ++i) {
      auto const& spec = plan.variables[i].spec;
      if (spec.trained()) {
        auto const end = at + count(variables[i].dims());
        give(reshape(slice_of(every, 0, at, end), variables[i].dims()), static_cast<int>(i));
        at = end;
      } else {
        give(kept(moved(spec.movement(), variables[i], own[i], rows), variables[i]), static_cast<int>(i));
      }
    }
    for (std::size_t s = 0; s < slots.size(); ++s)
      give(kept(slots[s], slots_[s]), static_cast<int>(variables.size() + s));
  }

  /// The rows of the global batch, and the numbers of the update rule.
  struct Numbers {
    Value rows, of_rule;
  };
  Numbers take_numbers() {
    auto const all = argument(Element::f32, {1 + static_cast<std::int64_t>(UpdateLowering<Optimizer>::scalars)});
    return {reshape(slice_of(all, 0, 0, 1), {}), slice_of(all, 0, 1, all.dim(0))};
  }
  /// All trained variables as one vector, filled up with zeros.
  Value in_one(std::vector<Value> const& of_variables, std::int64_t whole) {
    auto parts = std::vector<Value>{};
    for (std::size_t i = 0; i < of_variables.size(); ++i)
      if (plan.variables[i].spec.trained()) parts.push_back(reshape(of_variables[i], {count(of_variables[i].dims())}));
    auto const all = concatenate(parts, 0);
    return all.dim(0) == whole ? all : pad(all, 0, {0}, {whole - all.dim(0)});
  }

  /// Writes the faults of this step, and returns whether there are none.
  ///
  /// bad     how many numbers of the gradient of each variable are not finite
  Value find_faults(Value bad, Value loss) {
    auto others = bad_number(loss);
    if (set_.checked) others = others + sum(argument(Element::f32, {bad.dim(0) + 1}));
    faults_ = concatenate({bad, reshape(others, {1})}, 0);
    return compare(sum(faults_), "EQ", 0);
  }
  /// 1 where a number of x is not finite, else 0.
  static Value bad_number(Value x) { return select(compare(abs(x), "LT", HUGE_VAL), 0.0, detail::like(x, 1)); }
  /// For each value how many of its numbers are not finite.
  static Value bad_of(std::vector<Value> const& all) {
    auto each = std::vector<Value>{};
    for (auto const x : all) each.push_back(sum(bad_number(x)));
    return in_row(each);
  }

  Losses const* losses_;
  Optimizer const* rule_;
  Settings set_;
  Program program_;
  StepText made_{};
  std::vector<Value> slots_, targets_;
  std::vector<Value> used_;  // of tables with gradients of rows; or none
  Value faults_{};
  std::vector<Result> results_;
};

}  // namespace chorale::nn::stablehlo
