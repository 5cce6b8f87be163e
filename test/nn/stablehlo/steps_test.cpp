// SPDX-License-Identifier: Apache-2.0
//
// A training step of whole models as operations on several replicas, against Cpu with the whole batch.
#include "test/support/reference_nets.hpp"
#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/nn/engine/compiled.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/engine/term_losses.hpp>
#include <chorale/nn/lowering/gradient.hpp>
#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/lowering/losses.hpp>
#include <chorale/nn/lowering/network.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hlo_models {

using namespace chorale;
using namespace chorale::test::reference_nets;
namespace hlo = nn::stablehlo;
using test::Interpreter;

namespace {

/// All fields of the reference networks: of a row, or of the rows of a batch.
struct Fields {
  template <class F> struct Of {
    std::vector<typename F::element_type> all{};
  };

  std::size_t rows = 0;
  std::tuple<Of<Image>, Of<Kind>, Of<Text>, Of<Next>, Of<Body>, Of<Tags>, Of<Priority>,
             Of<test::reference_nets::Numbers>, Of<Users>, Of<Words>, Of<Noise>, Of<Picture>>
      fields{};

  template <class F> auto& operator[](F) { return std::get<Of<F>>(fields).all; }
  template <class F> auto const& operator[](F) const { return std::get<Of<F>>(fields).all; }

  explicit Fields(std::size_t n) : rows{n} {
    for (std::size_t r = 0; r < n; ++r) add_row(std::vector{static_cast<float>(r)});
  }

 private:
  struct Number {
    std::vector<float> x;
  };
  void add_row(std::vector<float> number) {
    auto row = Fields{0};
    test::reference_nets::write(Number{std::move(number)}, row);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (std::get<I>(fields).all.insert(std::get<I>(fields).all.end(), std::get<I>(row.fields).all.begin(),
                                      std::get<I>(row.fields).all.end()),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(fields)>>{});
  }
};

/// Losses, gradients and what moving variables move to: sums over the rows of a batch.
struct Sums {
  double loss = 0;
  std::vector<std::vector<double>> gradients{};  // of each variable
};

constexpr auto now = StepNumbers{.seed = Seed{0x123456789ABCDEF}, .step = 3};

template <class Net> std::vector<float> variables_of() {
  constexpr auto const& plan = nn::graph::plan_for<Net>();
  auto made                  = std::vector<float>(PlanView{plan}.values());
  for (std::size_t v = 0; v < plan.variables.size(); ++v) {
    auto const value = Span<float>{made}.subspan(plan.variables[v].offset, plan.variables[v].size);
    initialize(value, plan.variables[v].spec, Random{Seed{7}, v});
    for (std::size_t i = 0; i < value.size(); ++i) value[i] += Random{Seed{8}, v}.uniform(i, -0.1F, 0.1F);
  }
  return made;
}

template <class Net, class Terms> Sums on_cpu(Terms const& terms, Fields const& batch, std::vector<float>& variables) {
  using Executing            = nn::GraphExecutor<Net, Cpu>;
  constexpr auto const& plan = nn::graph::plan_for<Net>();
  auto gradients             = std::vector<float>(variables.size());
  auto tables                = row_gradients_of(plan);
  auto executor              = Executing{static_cast<int>(batch.rows), variables, gradients, tables};
  auto const pass            = Pass{.training = true, .now = now};
  [&]<class... F>(nn::detail::List<F...>) {
    auto i = std::size_t{0};
    (executor.read(i++, batch[F{}].data()), ...);
  }(typename Net::inputs{});
  executor.forward(pass);
  auto made    = Sums{};
  auto scratch = Kernels<Cpu>::Scratch{};
  std::apply(
      [&](auto const&... term) {
        using Losses = nn::graph::TermLosses<Net, Cpu, Executing>;
        ((made.loss += double{Losses::loss_of(
              term, batch, executor, executor.d_output(Losses::template output_of<std::remove_cvref_t<decltype(term)>>),
              {}, scratch)}),
         ...);
      },
      terms);
  executor.backward(pass, LooksAtEnd{});
  for (auto const& table : tables)
    for (std::size_t i = 0; i < table.size(); ++i)
      std::copy_n(table[i].data(), table.width(),
                  &gradients[plan.variables[table.variable()].offset + table.rows()[i] * table.width()]);
  for (auto const& v : plan.variables) made.gradients.emplace_back(&gradients[v.offset], &gradients[v.offset] + v.size);
  return made;
}

/// The step of a model as a program, and its arguments: each replica has room for some rows of the batch.
class Step {
 public:
  Step(std::size_t replicas, std::size_t places, Fields const& batch)
      : program_{static_cast<int>(replicas)}, batch_{&batch}, places_{places}, arguments_(replicas) {}

  template <class Net, class Terms> Sums run(Terms const& terms, std::vector<float> const& variables) {
    constexpr auto const& plan = nn::graph::plan_for<Net>();
    auto values                = std::vector<hlo::Value>{};
    for (auto const& v : plan.variables)
      values.push_back(on_all(hlo::Element::f32, {v.spec.dims.begin(), v.spec.dims.begin() + v.spec.rank},
                              {&variables[v.offset], &variables[v.offset] + v.size}));
    auto inputs = std::vector<hlo::Value>{};
    [&]<class... F>(nn::detail::List<F...>) { (inputs.push_back(field<F>()), ...); }(typename Net::inputs{});
    auto const real = of_rows(hlo::Element::f32, {}, test::Numbers(batch_->rows, 1));
    auto const word = [&](std::uint64_t w) {
      return on_all(hlo::Element::u32, {}, {static_cast<double>(w & 0xFFFFFFFF)});
    };
    auto const drawn = hlo::Drawn{word(now.drawn().value), word(now.drawn().value >> 32), word(0)};
    for (std::size_t r = 0; r < arguments_.size(); ++r) arguments_[r].back()[0] = static_cast<double>(r * places_);

    auto const written = hlo::write_network<Net>(program_, inputs, values, true, real, drawn);
    auto loss          = program_.constant(0);
    std::apply([&](auto const&... term) { ((loss = loss + term_of<Net>(term, written.outputs, real)), ...); }, terms);
    auto wanted = gradients(loss, values);
    for (std::size_t v = 0; v < values.size(); ++v)
      wanted[v] = all_reduce(written.moved[v] ? written.moved[v] : wanted[v]);
    wanted.push_back(all_reduce(loss));
    auto const computed = Interpreter{program_, arguments_, wanted};
    auto made           = Sums{.loss = computed(wanted.back())[0]};
    for (std::size_t v = 0; v < values.size(); ++v)
      made.gradients.push_back(computed(wanted[v], arguments_.size() - 1));
    return made;
  }

 private:
  hlo::Value on_all(hlo::Element element, hlo::Dims dims, test::Numbers const& numbers) {
    for (auto& of_replica : arguments_) of_replica.push_back(numbers);
    return program_.parameter(element, std::move(dims));
  }
  /// An argument of rows, with zeros in place of those that are missing.
  hlo::Value of_rows(hlo::Element element, hlo::Dims dims, test::Numbers const& all) {
    auto const width = all.size() / batch_->rows;
    for (std::size_t r = 0; r < arguments_.size(); ++r) {
      auto part        = test::Numbers(places_ * width);
      auto const first = r * part.size();
      for (std::size_t i = 0; i < part.size() && first + i < all.size(); ++i) part[i] = all[first + i];
      arguments_[r].push_back(std::move(part));
    }
    dims.insert(dims.begin(), static_cast<std::int64_t>(places_));
    return program_.parameter(element, std::move(dims));
  }
  template <class F> hlo::Value field() {
    auto const& all = (*batch_)[F{}];
    return of_rows(std::is_same_v<typename F::element_type, int> ? hlo::Element::i32 : hlo::Element::f32,
                   {F::dims.begin(), F::dims.end()}, {all.begin(), all.end()});
  }
  template <class Net, class Term>
  hlo::Value term_of(Term const& term, std::vector<hlo::Value> const& outputs, hlo::Value real) {
    auto const targets = field<typename Term::field>();
    auto weights       = hlo::Value{};
    if constexpr (!std::is_void_v<typename Term::row_weight>) weights = field<typename Term::row_weight>();
    constexpr auto o = nn::graph::index_of<typename Term::field, typename nn::graph::OutputsIn<Net>::fields>;
    return hlo::term_sum<Net>(term, outputs[o], targets, weights, real);
  }

  hlo::Program program_;
  Fields const* batch_;
  std::size_t places_;
  std::vector<std::vector<test::Numbers>> arguments_;  // [replica][i]
};

/// Compares a step of five rows: on one replica with room for more, on three, and where two of them have none.
template <class Net, class Losses> void check(Losses const& losses) {
  auto const terms    = nn::detail::terms_of(nn::graph::term_of<Net>(losses));
  auto const batch    = Fields{5};
  auto variables      = variables_of<Net>();
  auto const expected = on_cpu<Net>(terms, batch, variables);
  for (auto const& [replicas, places] : {std::pair<std::size_t, std::size_t>{1, 6}, {3, 2}, {3, 5}}) {
    INFO(replicas << " replicas of " << places << " rows");
    auto const got = Step{replicas, places, batch}.run<Net>(terms, variables);
    CHECK(got.loss == Approx(expected.loss).epsilon(1e-5));
    for (std::size_t v = 0; v < expected.gradients.size(); ++v) {
      INFO(std::string_view{nn::graph::plan_for<Net>().variables[v].name});
      auto largest = 0.0, error = 0.0;
      for (auto const g : expected.gradients[v]) largest = std::max(largest, std::abs(g));
      for (std::size_t i = 0; i < got.gradients[v].size(); ++i) {
        auto const off = std::abs(got.gradients[v][i] - expected.gradients[v].at(i));
        error          = std::isnan(off) ? HUGE_VAL : std::max(error, off);
      }
      CHECK(largest > 0);
      CHECK(error < 1e-5 * largest + 1e-8);  // some are 0 but for rounding
    }
  }
}
template <class Net> void check() { check<Net>(loss_of<Net>()); }

}  // namespace

TEST_CASE("a step of a network over images as operations is that of Cpu", "[nn][stablehlo]") {
  check<LeNet>();
  check<Residual<nn::SyncBatchNorm>>();
}
TEST_CASE("a step of a network over texts as operations is that of Cpu", "[nn][stablehlo]") { check<CharacterGpt>(); }
TEST_CASE("a step of a network of many inputs as operations is that of Cpu", "[nn][stablehlo]") {
  check<Tickets>();
  check<Tickets>(nn::of<Priority>(loss::BinaryCrossEntropy{}).weighted_by(Priority{}) +
                 0.3F * nn::of<Kind>(loss::Weighted{loss::SparseCrossEntropy{0.1F}, {1, 2, 3}}));
  check<Dlrm>();
}

TEST_CASE("rows that are not real have neither loss nor gradient, whatever their outputs are", "[nn][stablehlo]") {
  auto program      = hlo::Program{};
  auto const y      = program.parameter(hlo::Element::f32, {3, 1});
  auto const wanted = program.parameter(hlo::Element::f32, {3, 1});
  auto const real   = program.parameter(hlo::Element::f32, {3});
  auto const loss   = hlo::term_sum<Dlrm>(2.0F * nn::of<Priority>(loss::BinaryCrossEntropy{}), y, wanted, {}, real);
  auto const by     = gradients(loss, {y})[0];
  auto const made   = Interpreter{program, {{{0, std::nan(""), 1}, {1, 0, 0}, {1, 0, 1}}}, {loss, by}};
  CHECK(made(loss)[0] == Approx(2 * (std::log(2.0) + std::log1p(std::exp(1.0)))));
  CHECK(made(by)[0] == Approx(-1));
  CHECK(made(by)[1] == 0);
  CHECK(made(by)[2] == Approx(2 / (1 + std::exp(-1.0))));
}

}  // namespace hlo_models
