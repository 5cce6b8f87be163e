// SPDX-License-Identifier: Apache-2.0
//
// The rules of distribution types are sound: every program of at most three operations that they allow, run by a small
// interpreter over 1 to 4 ranks in exact integers, has the outputs and the gradients of one device. And none is too
// strict: whatever they refuse is wrong for every distribution that its output could be given.
#include <chorale/nn/parallel/distribution/rules.hpp>
#include <chorale/nn/parallel/distribution/table.hpp>

#include <catch2/catch.hpp>

#include "test/nn/rank_programs.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distribution_soundness_test {

using namespace chorale;
using namespace chorale::nn;
using namespace chorale::nn::distribution;
using namespace chorale::test::ranks;

namespace {

/// A value of a program: as one device has it, and as ranks have it.
struct Value {
  Distribution is;
  Matrices whole, parts;
};

/// One operation of a program: a layer, or a conversion.
struct Call {
  Layer const* layer = nullptr;
  Conversion way{};
  std::size_t a = 0, b = 0;  // values
};

struct Counted {
  std::size_t programs = 0;
  std::string first_wrong{};  // empty: none
};

/// Tries all programs over so many ranks.
class Programs {
 public:
  Programs(Span<Rule const> table, Span<Conversion const> ways, int ranks)
      : table_{table}, ways_{ways}, ranks_{ranks}, n_{ranks == 1   ? 2
                                                      : ranks == 2 ? 4
                                                      : ranks == 3 ? 6
                                                                   : 4} {
    auto seed = 1U;
    for (auto const as : {invariant, replicated, varying, partial, sharded<0>, sharded<1>}) {
      auto whole = Matrices{};
      for (int i = 0; i < (as == varying ? ranks : 1); ++i) whole.push_back(drawn(n_, n_, seed++));
      values_.push_back({as, whole, dealt(as, whole, ranks, seed += 10)});
    }
    leaves_ = values_.size();
  }

  /// All programs of at most `depth` operations, each of which reads what the one before gave.
  Counted all(int depth) {
    extend(depth);
    return counted_;
  }

  /// The first refused rule that would be right with some distribution of y; nothing if all refusals are needed.
  std::string too_strict() {
    for (auto const& layer : layers)
      for (std::size_t a = 0; a < leaves_; ++a)
        for (std::size_t b = 0; b < (layer.is_binary() ? leaves_ : 1); ++b) {
          if (result(layer, a, b).why == Reason::none) continue;
          for (auto const as : {invariant, replicated, varying, partial, sharded<0>, sharded<1>}) {
            auto const y = computed(layer, a, b);
            ++refusals;
            if (y && is(y->parts, as, y->whole) && gradients_are_right({&layer, {}, a, b}, as)) {
              return layer.name + " of " + text_of(values_[a].is) + " and " + text_of(values_[b].is) + " is " +
                     text_of(as);
            }
          }
        }
    return {};
  }
  std::size_t refusals = 0;  // that too_strict() has tried

 private:
  Result result(Layer const& layer, std::size_t a, std::size_t b) const {
    if (!layer.is_binary()) return result_of(table_, layer.operation, layer.over, values_[a].is, 2);
    return result_of(table_, layer.operation, layer.over, values_[a].is, 2, values_[b].is, 2);
  }

  /// The result on ranks and on one device, without a distribution; nothing where shapes do not fit on ranks.
  std::optional<Value> computed(Layer const& layer, std::size_t a, std::size_t b) const {
    auto const& x = values_[a];
    auto const& z = values_[layer.is_binary() ? b : a];
    auto y        = Value{};
    for (std::size_t r = 0; r < x.parts.size(); ++r) {
      if (!layer.takes(x.parts[r], z.parts[r])) return {};
      y.parts.push_back(layer.forward(x.parts[r], z.parts[r]));
    }
    for (std::size_t i = 0; i < std::max(x.whole.size(), z.whole.size()); ++i) {
      auto const& p = x.whole[x.whole.size() == 1 ? 0 : i];
      auto const& q = z.whole[z.whole.size() == 1 ? 0 : i];
      if (!layer.takes(p, q)) return {};
      y.whole.push_back(layer.forward(p, q));
    }
    return y;
  }

  /// Appends all operations that may read value `last`, and goes on with each.
  void extend(int depth) {
    if (depth == 0 || !counted_.first_wrong.empty()) return;
    auto const first = values_.size() == leaves_ ? std::size_t{0} : values_.size() - 1;
    for (std::size_t a = 0; a < values_.size(); ++a)
      for (auto const& layer : layers) {
        if (!layer.is_binary()) {
          if (a >= first) try_layer(layer, a, a, depth);
        } else {
          for (std::size_t b = 0; b < values_.size(); ++b)
            if (a >= first || b >= first) try_layer(layer, a, b, depth);
        }
      }
    for (auto a = first; a < values_.size(); ++a)
      for (auto const& way : ways_) try_conversion(way, a, depth);
  }

  void try_layer(Layer const& layer, std::size_t a, std::size_t b, int depth) {
    auto const result = this->result(layer, a, b);
    if (result.why != Reason::none) return;
    auto y = computed(layer, a, b);
    if (!y) return;
    y->is = result.y;
    go_on({&layer, {}, a, b}, std::move(*y), depth);
  }

  void try_conversion(Conversion const& way, std::size_t a, int depth) {
    auto const& x = values_[a];
    if (distribution::like(x.is, 0, 2) != way.from) return;
    for (int dim = 0; dim < (way.to == Like::sharded ? 2 : 1); ++dim) {
      auto const to = distribution::made(way.to, dim);
      if (way.change == Change::all_to_all && x.is.dim == dim) continue;
      if (way.change == Change::as_shards && x.whole[0].size(dim) * ranks_ > 6) continue;  // room of a Matrix
      auto const whole = whole_converted(x.is, to, x.whole, ranks_);
      if (!fits(to, whole, ranks_)) continue;
      go_on({nullptr, way, a, a}, {to, whole, converted(way.change, x.is, to, x.parts)}, depth);
    }
  }

  void go_on(Call const& call, Value y, int depth) {
    auto const is_right = is(y.parts, y.is, y.whole);
    values_.push_back(std::move(y));
    calls_.push_back(call);
    ++counted_.programs;
    if (!is_right || !gradients_are_right()) {
      if (counted_.first_wrong.empty()) counted_.first_wrong = program() + (is_right ? ": gradient" : ": value");
    } else {
      extend(depth - 1);
    }
    values_.pop_back();
    calls_.pop_back();
  }

  /// Backward of one program, from a gradient by its output of any numbers.
  bool gradients_are_right() const {
    auto const& y = values_.back();
    auto seed     = Matrices{};
    for (auto const& whole : y.whole)
      seed.push_back(drawn(whole.rows, whole.columns, static_cast<unsigned>(91 + seed.size())));
    auto d          = std::vector<std::optional<std::pair<Matrices, Matrices>>>(values_.size());  // whole, parts
    d.back()        = std::pair{seed, dealt(dual(y.is), seed, ranks_, 55)};
    auto const give = [&](std::size_t to, Matrices whole, Matrices parts) {
      if (!d[to]) {
        d[to].emplace(std::move(whole), std::move(parts));
        return;
      }
      for (std::size_t i = 0; i < whole.size(); ++i) d[to]->first[i] = sum_of(d[to]->first[i], whole[i]);
      for (std::size_t r = 0; r < parts.size(); ++r) d[to]->second[r] = sum_of(d[to]->second[r], parts[r]);
    };
    for (auto c = calls_.size(); c-- > 0;) {
      auto const& call   = calls_[c];
      auto const& output = values_[leaves_ + c];
      auto const dy      = *d[leaves_ + c];
      if (call.layer == nullptr) {
        auto const from = values_[call.a].is;
        give(call.a, whole_converted_back(from, output.is, dy.first, ranks_),
             converted(call.way.backward, dual(output.is), dual(from), dy.second));
      } else if (!back_through(call, dy, give)) {
        return false;
      }
    }
    for (std::size_t v = 0; v < leaves_; ++v)
      if (d[v] && !is(d[v]->second, dual(values_[v].is), d[v]->first)) return false;
    return true;
  }
  /// Backward of one layer whose output is said to have distribution `as`.
  bool gradients_are_right(Call const& call, Distribution as) {
    auto y = *computed(*call.layer, call.a, call.b);
    y.is   = as;
    values_.push_back(y), calls_.push_back(call);
    auto const right = gradients_are_right();
    values_.pop_back(), calls_.pop_back();
    return right;
  }

  /// Gives the gradients by the inputs of a layer; false if those by its variables are not complete on each rank.
  bool back_through(Call const& call, std::pair<Matrices, Matrices> const& dy, auto&& give) const {
    auto const& layer = *call.layer;
    auto const& a     = values_[call.a];
    auto const& b     = values_[call.b];
    auto of_parts = std::pair<Matrices, Matrices>{}, of_whole = of_parts;
    for (std::size_t r = 0; r < a.parts.size(); ++r) {
      auto const [da, db] = layer.backward(a.parts[r], b.parts[r], dy.second[r]);
      of_parts.first.push_back(da), of_parts.second.push_back(db);
    }
    auto const add = [](Matrices& to, std::size_t i, Matrix const& d) {  // one value that many read
      if (i < to.size()) to[i] = sum_of(to[i], d);
      else to.push_back(d);
    };
    for (std::size_t i = 0; i < dy.first.size(); ++i) {
      auto const at_a = a.whole.size() == 1 ? 0 : i, at_b = b.whole.size() == 1 ? 0 : i;
      auto const [da, db] = layer.backward(a.whole[at_a], b.whole[at_b], dy.first[i]);
      add(of_whole.first, at_a, da), add(of_whole.second, at_b, db);
    }
    if (layer.operation == Operation::trained) {
      auto whole = Matrices{}, parts = Matrices{};
      for (std::size_t i = 0; i < dy.first.size(); ++i) add(whole, 0, gradient_of_weights(a.whole[i], dy.first[i]));
      for (std::size_t r = 0; r < a.parts.size(); ++r) parts.push_back(gradient_of_weights(a.parts[r], dy.second[r]));
      auto const is_sharded = a.is.kind == Distribution::Kind::sharded;  // then gradients are added up over ranks
      if (!is(parts, is_sharded ? partial : invariant, whole)) return false;
    }
    give(call.a, of_whole.first, of_parts.first);
    if (layer.is_binary()) give(call.b, of_whole.second, of_parts.second);
    return true;
  }

  std::string program() const {
    auto text = std::to_string(ranks_) + " ranks";
    for (std::size_t c = 0; c < calls_.size(); ++c) {
      auto const& call = calls_[c];
      text += "; " + text_of(values_[leaves_ + c].is) + " = " +
              (call.layer != nullptr ? call.layer->name : std::string{distribution::text_of(call.way.change)}) +
              " of " + text_of(values_[call.a].is) + ", " + text_of(values_[call.b].is);
    }
    return text;
  }

  Span<Rule const> table_;
  Span<Conversion const> ways_;
  int ranks_, n_;
  std::vector<Value> values_;
  std::size_t leaves_ = 0;
  std::vector<Call> calls_;
  Counted counted_;
};

/// All programs over 1 to 4 ranks.
Counted all_programs(Span<Rule const> table, Span<Conversion const> ways, int depth) {
  auto all = Counted{};
  for (int ranks = 1; ranks <= 4 && all.first_wrong.empty(); ++ranks) {
    auto const some = Programs{table, ways, ranks}.all(depth);
    all.programs += some.programs;
    all.first_wrong = some.first_wrong;
  }
  return all;
}

/// A file of docs/.
std::string page() {
  auto file = std::ifstream{"docs/44-distribution.md"};
  return {std::istreambuf_iterator<char>{file}, {}};
}
/// A number as the page has it: 725 022.
std::string grouped(std::size_t n) {
  auto text = std::to_string(n);
  for (auto i = static_cast<int>(text.size()) - 3; i > 0; i -= 3) text.insert(static_cast<std::size_t>(i), " ");
  return "| " + text + " |";
}

/// The rules with another result of one.
auto with(Operation operation, Like a, Like b, Like y, Reason why = Reason::none) {
  auto changed = rules;
  for (auto& rule : changed)
    if (rule.operation == operation && rule.a == a && rule.b == b) rule.y = y, rule.why = why;
  return changed;
}
/// The conversions with another backward of one.
auto with(Change change, Like from, Like to, Change backward) {
  auto changed = conversions;
  for (auto& way : changed)
    if (way.change == change && way.from == from && way.to == to) way.backward = backward;
  return changed;
}

}  // namespace

TEST_CASE("every program of three operations that distribution types allow computes what one device computes",
          "[nn][distribution]") {
  auto const all = all_programs(rules, conversions, 3);
  CHECK(all.first_wrong == "");
  CHECK(all.programs > 10'000);
  CHECK(page().find(grouped(all.programs)) != std::string::npos);
  std::cout << "distribution types: " << all.programs << " programs over 1 to 4 ranks are those of one device\n";
}

TEST_CASE("every pair of distributions that an operation refuses would be wrong", "[nn][distribution]") {
  auto tried = std::size_t{0};
  for (int ranks = 2; ranks <= 4; ++ranks) {
    auto programs = Programs{rules, conversions, ranks};
    CHECK(programs.too_strict() == "");
    tried += programs.refusals;
  }
  CHECK(page().find(grouped(tried)) != std::string::npos);
  std::cout << "distribution types: " << tried << " refused programs are wrong, whatever their output is taken for\n";
}

TEST_CASE("a wrong rule of distribution types is found", "[nn][distribution]") {
  using enum Operation;
  using enum Like;
  auto const is_wrong = [](auto const& table, auto const& ways) { return all_programs(table, ways, 2).first_wrong; };
  CHECK(is_wrong(with(multiply, partial, partial, partial), conversions) != "");
  CHECK(is_wrong(with(add, partial, any, partial), conversions) != "");
  CHECK(is_wrong(with(nonlinear, partial, none, partial), conversions) != "");
  CHECK(is_wrong(with(trained, any, none, replicated), conversions) != "");
  CHECK(is_wrong(with(add, invariant, any, replicated), conversions) != "");
  CHECK(is_wrong(with(sum, across, none, sharded), conversions) != "");
  CHECK(is_wrong(with(contract, across, across, replicated), conversions) != "");
  CHECK(is_wrong(rules, with(Change::all_reduce, partial, invariant, Change::all_reduce)) != "");
  CHECK(is_wrong(rules, with(Change::replicate, invariant, replicated, Change::replicate)) != "");
  CHECK(is_wrong(rules, with(Change::all_gather, sharded, replicated, Change::scatter)) != "");
  CHECK(is_wrong(rules, with(Change::count_once, replicated, invariant, Change::replicate)) != "");

  auto const refusing = with(multiply, partial, replicated, none, Reason::not_linear);
  CHECK(Programs{refusing, conversions, 3}.too_strict() != "");
}

TEST_CASE("docs/44-distribution.md has the tables of the headers", "[nn][distribution]") {
  auto const all = text();
  if (page().find(all) == std::string::npos) std::cout << "The page should have:\n\n" << all;
  CHECK(page().find(all) != std::string::npos);
}

// Each rule once more, written by hand.
namespace {
using enum Operation;
constexpr auto I = Like::invariant, R = Like::replicated, V = Like::varying, P = Like::partial, S = Like::sharded,
               X = Like::across, no = Like::none;
constexpr Like of(Operation operation, Like a, Like b = Like::none) { return rule_of(rules, operation, a, b).y; }
constexpr Reason why(Operation operation, Like a, Like b = Like::none) { return rule_of(rules, operation, a, b).why; }

static_assert(of(linear, I) == I && of(linear, R) == R && of(linear, V) == V && of(linear, P) == P);
static_assert(of(linear, S) == S);
static_assert(why(linear, X) == Reason::moves);
static_assert(of(sum, I) == I && of(sum, R) == R && of(sum, V) == V && of(sum, P) == P && of(sum, S) == S);
static_assert(of(sum, X) == P);
static_assert(of(nonlinear, I) == I && of(nonlinear, R) == R && of(nonlinear, V) == V && of(nonlinear, S) == S);
static_assert(why(nonlinear, P) == Reason::not_linear && why(nonlinear, X) == Reason::needs_whole);
static_assert(of(trained, I) == I && of(trained, S) == S && why(trained, R) == Reason::variables &&
              why(trained, V) == Reason::variables);
static_assert(why(trained, P) == Reason::variables && why(trained, X) == Reason::variables);

static_assert(of(add, I, I) == I && of(add, R, R) == R && of(add, V, V) == V && of(add, P, P) == P);
static_assert(of(add, S, S) == S);
static_assert(of(add, R, V) == V && of(add, V, R) == V);
static_assert(why(add, R, P) == Reason::added_by_each && why(add, P, I) == Reason::added_by_each);
static_assert(why(add, I, R) == Reason::invariant_with_other && why(add, V, I) == Reason::invariant_with_other);
static_assert(why(add, P, V) == Reason::part_with_own && why(add, V, P) == Reason::part_with_own);
static_assert(why(add, S, I) == Reason::shapes && why(add, R, S) == Reason::shapes && why(add, X, X) == Reason::moves);

static_assert(of(multiply, I, I) == I && of(multiply, R, R) == R && of(multiply, V, V) == V);
static_assert(of(multiply, S, S) == S);
static_assert(of(multiply, P, R) == P && of(multiply, R, P) == P && of(multiply, R, V) == V);
static_assert(of(multiply, V, R) == V);
static_assert(of(multiply, P, P) == no && why(multiply, P, P) == Reason::product_of_parts);
static_assert(why(multiply, P, I) == Reason::invariant_with_other && why(multiply, P, V) == Reason::part_with_own);
static_assert(why(multiply, I, R) == Reason::invariant_with_other && why(multiply, S, R) == Reason::shapes);

static_assert(of(combine, I, I) == I && of(combine, R, R) == R && of(combine, V, V) == V && of(combine, S, S) == S);
static_assert(of(combine, R, V) == V && of(combine, V, R) == V && why(combine, P, R) == Reason::not_linear);
static_assert(why(combine, P, P) == Reason::not_linear && why(combine, R, I) == Reason::invariant_with_other);

static_assert(of(contract, I, I) == I && of(contract, R, R) == R && of(contract, V, V) == V);
static_assert(of(contract, R, V) == V);
static_assert(of(contract, P, R) == P && of(contract, R, P) == P && of(contract, S, R) == S);
static_assert(of(contract, R, S) == S);
static_assert(of(contract, X, X) == P && why(contract, P, P) == Reason::product_of_parts);
static_assert(why(contract, S, S) == Reason::diagonal && why(contract, S, P) == Reason::part_of_whole);
static_assert(why(contract, X, R) == Reason::shapes && why(contract, I, S) == Reason::invariant_with_other);

constexpr auto back(Change change, Like from, Like to) { return conversion_of(conversions, change, from, to).backward; }
static_assert(back(Change::all_reduce, P, R) == Change::all_reduce);
static_assert(back(Change::all_reduce, P, I) == Change::replicate);
static_assert(back(Change::replicate, I, R) == Change::all_reduce && back(Change::all_reduce, V, I) == Change::vary);
static_assert(back(Change::all_gather, S, R) == Change::reduce_scatter);
static_assert(back(Change::all_gather, S, I) == Change::scatter);
static_assert(back(Change::reduce_scatter, P, S) == Change::all_gather && back(Change::scatter, R, S) == Change::pad);
static_assert(back(Change::scatter, I, S) == Change::all_gather && back(Change::pad, S, P) == Change::scatter);
static_assert(back(Change::all_to_all, S, S) == Change::all_to_all && back(Change::vary, I, V) == Change::all_reduce);
static_assert(back(Change::on_one_rank, R, P) == Change::on_one_rank);
static_assert(back(Change::on_one_rank, I, P) == Change::count_once);
static_assert(back(Change::count_once, R, I) == Change::on_one_rank && back(Change::vary, R, V) == Change::as_parts);
static_assert(back(Change::as_parts, V, P) == Change::vary && back(Change::vary, S, V) == Change::as_shards);
static_assert(back(Change::as_shards, V, S) == Change::vary);
static_assert(conversion_of(conversions, Change::all_reduce, R, R).to == no);
static_assert(conversion_of(conversions, Change::all_gather, R, R).to == no);
static_assert(dual(nn::replicated) == nn::partial && dual(nn::partial) == nn::replicated);
static_assert(dual(nn::varying) == nn::varying && dual(nn::invariant) == nn::invariant);
}  // namespace

}  // namespace distribution_soundness_test
