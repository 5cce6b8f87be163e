// SPDX-License-Identifier: Apache-2.0
//
// Reads a module of StableHLO that text_of() in nn/lowering/text.hpp has written, for the interpreter.
#pragma once

#include "test/support/stablehlo_numbers.hpp"

#include <chorale/core/half.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/lowering/text.hpp>
#include <chorale/pjrt/device/signature.hpp>

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::test::hlo {

using nn::stablehlo::Operation;
using nn::stablehlo::Program;
using nn::stablehlo::Value;

inline Element element_of(std::string_view text) {
  for (auto const e : {Element::f32, Element::bf16, Element::f16, Element::i32, Element::u32, Element::i1})
    if (nn::stablehlo::text_of(e) == text) return e;
  throw std::runtime_error{"the parser of StableHLO met the element type " + std::string{text}};
}
inline Element element_of(pjrt::ElementType type) {
  switch (type) {
    case pjrt::ElementType::bf16: return Element::bf16;
    case pjrt::ElementType::f16: return Element::f16;
    case pjrt::ElementType::s32: return Element::i32;
    case pjrt::ElementType::u32: return Element::u32;
    case pjrt::ElementType::pred: return Element::i1;
    default: return Element::f32;
  }
}

/// All whole numbers of a text.
inline Dims whole_numbers(std::string_view text) {
  auto all = Dims{};
  for (auto const *at = text.data(), *end = at + text.size(); at != end;) {
    auto number          = std::int64_t{0};
    auto const [to, why] = std::from_chars(at, end, number);
    if (why == std::errc{}) all.push_back(number), at = to;
    else ++at;
  }
  return all;
}

/// A program that was read from a text, and what it returns.
class Parsed {
 public:
  Parsed(std::string const& text, int replicas) : program{replicas} {
    for (auto const& argument : pjrt::signature_of(text).arguments)
      named_["%arg" + std::to_string(named_.size())] =
          program.parameter(element_of(argument.type), {argument.dims.begin(), argument.dims.end()});
    auto statement = std::string{};
    for (std::size_t at = 0; at < text.size();) {
      auto const end  = std::min(text.find('\n', at), text.size());
      auto const line = text.substr(at, end - at);
      at              = end + 1;
      if (line.starts_with("    %") || line.starts_with("    return ")) read(std::exchange(statement, line));
      else if (!statement.empty()) statement += line;
    }
    read(statement);
    expect(!results.empty(), "a program that returns something");
  }

  Program program;
  std::vector<Value> results{};

 private:
  static constexpr bool is_each(Kind kind) {  // element by element
    return kind >= Kind::add && kind <= Kind::exponential_minus_one;
  }

  /// Reads a statement: its first line, and those of a region of its own.
  void read(std::string const& s) {
    if (s.empty()) return;
    if (s.starts_with("    return ")) {
      for (auto const& name : names(s.substr(0, s.find(" : ")))) results.push_back(named_.at(name));
      return;
    }
    auto const equals = s.find(" = ");
    auto const name   = s.substr(4, equals - 4);
    auto const body   = s.substr(equals + 3);
    auto made         = Operation{kind_of(body), {}, {}};
    auto const type   = body.substr(body.rfind("tensor<") + 7);
    auto const inner  = type.substr(0, type.find('>'));
    auto const x      = inner.rfind('x');
    made.element      = element_of(inner.substr(x == inner.npos ? 0 : x + 1));
    if (x != inner.npos) made.dims = whole_numbers(inner.substr(0, x));
    auto const end = std::min({body.find(" : "), body.find("<{"), body.find("({")});
    for (auto const& operand : names(body.substr(0, end))) made.in.push_back(named_.at(operand).id);
    read_options(made, body);
    check(made, body);
    named_[name] = program.append(std::move(made));
  }

  static Kind kind_of(std::string const& body) {
    auto const first = body.find('.') + 1;
    auto const word  = body.substr(first, body.find_first_of(" (\"", first) - first);
    for (auto k = static_cast<int>(Kind::constant); k <= static_cast<int>(Kind::replica_id); ++k)
      if (nn::stablehlo::text_of(static_cast<Kind>(k)) == word) return static_cast<Kind>(k);
    throw std::runtime_error{"the parser of StableHLO met the operation " + word};
  }
  static std::vector<std::string> names(std::string const& text) {
    auto all = std::vector<std::string>{};
    for (auto at = text.find('%'); at != text.npos; at = text.find('%', at + 1)) {
      auto end = at + 1;
      while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
      all.push_back(text.substr(at, end - at));
    }
    return all;
  }
  /// What stands between two words.
  static std::string between(std::string const& text, std::string_view begin, std::string_view end) {
    auto const at = text.find(begin);
    if (at == text.npos) return {};
    auto const from = at + begin.size();
    return text.substr(from, text.find(end, from) - from);
  }

  void read_options(Operation& o, std::string const& s) {
    auto const list = [&](std::string_view begin, std::string_view end = "]") {
      o.lists.push_back(whole_numbers(between(s, begin, end)));
    };
    auto const word = [&](std::string text) { o.word = *words_.insert(std::move(text)).first; };
    switch (o.kind) {
      case Kind::constant: o.number = number(between(s, "dense<", ">"), o.element); break;
      case Kind::iota: list("dim = ", " :"); break;
      case Kind::broadcast:
      case Kind::transpose:
      case Kind::reverse: list("dims = ["); break;
      case Kind::concatenate: list("dim = ", " :"); break;
      case Kind::slice: {
        o.lists.resize(3);
        auto const all = whole_numbers(between(s, " [", "]"));
        for (std::size_t i = 0; i < all.size(); ++i) o.lists[i % 3].push_back(all[i]);
        break;
      }
      case Kind::pad: list("low = ["), list("high = ["), list("interior = ["); break;
      case Kind::compare: word(between(s, "compare ", ",")); break;
      case Kind::reduce:
        o.in.resize(1);  // the other is the neutral number
        word(between(s, "applies stablehlo.", " "));
        list("dimensions = [");
        break;
      case Kind::reduce_window:
        o.in.resize(1);
        word(between(s, "%c = stablehlo.", " "));
        list("window_dimensions = array<i64:", ">"), list("window_strides = array<i64:", ">");
        break;
      case Kind::select_and_scatter:
        o.in.resize(2);
        list("window_dimensions = array<i64:", ">"), list("window_strides = array<i64:", ">");
        break;
      case Kind::dot:
        for (auto const* key : {"batching_dims = [", "contracting_dims = ["}) {
          list(key);
          auto const rest = s.find(key) == s.npos ? std::string{} : s.substr(s.find(key));
          o.lists.push_back(whole_numbers(between(rest, "] x [", "]")));
        }
        break;
      case Kind::convolution: {
        word(between(s, "dim_numbers = ", ", window"));
        list("stride = [");
        auto const pads = whole_numbers(between(s, "pad = [[", "]]"));
        o.lists.push_back({pads.at(0), pads.at(2)}), o.lists.push_back({pads.at(1), pads.at(3)});
        list("lhs_dilate = ["), list("rhs_dilate = [");
        o.lists.push_back({whole_numbers(between(s, "feature_group_count = ", " :")).at(0),
                           whole_numbers(between(s, "batch_group_count = ", " :")).at(0)});
        break;
      }
      default: break;
    }
  }

  /// Refuses operands that a compiler would refuse.
  void check(Operation const& o, std::string const& s) const {
    auto const what = [&] { return "operands that fit: " + s.substr(0, 200); };
    for (auto const x : o.in) {
      auto const& in = program.at(x);
      if (is_each(o.kind)) expect(in.dims == o.dims && in.element == o.element, what());
      if (o.kind == Kind::reshape) expect(count(in.dims) == count(o.dims), what());
      if (o.kind == Kind::dot || o.kind == Kind::convolution) expect(in.element == program.at(o.in[0]).element, what());
    }
  }

  static double number(std::string const& text, Element element) {
    if (text == "true" || text == "false") return text == "true" ? 1 : 0;
    if (!text.starts_with("0x")) return std::strtod(text.c_str(), nullptr);
    auto const bits = static_cast<std::uint32_t>(std::strtoul(text.c_str() + 2, nullptr, 16));
    if (element == Element::f32) return static_cast<double>(std::bit_cast<float>(bits));
    return element == Element::bf16 ? static_cast<float>(std::bit_cast<bf16>(static_cast<std::uint16_t>(bits)))
                                    : static_cast<float>(std::bit_cast<fp16>(static_cast<std::uint16_t>(bits)));
  }

  std::map<std::string, Value> named_;
  std::set<std::string> words_;  // that operations have views of
};

}  // namespace chorale::test::hlo
