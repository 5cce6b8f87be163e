// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/lowering/program.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

/// The name of an element type in a text: "f32".
constexpr std::string_view text_of(Element element) {
  constexpr std::array<std::string_view, 6> names{"f32", "bf16", "f16", "i32", "ui32", "i1"};
  return names[static_cast<std::size_t>(element)];
}

/// The name of an operation in a text, without its dialect: "add".
constexpr std::string_view text_of(Kind kind) {
  // clang-format off
  constexpr std::array<std::string_view, 54> names{
      "parameter", "constant", "iota", "convert", "reshape", "stop", "broadcast_in_dim", "transpose", "reverse", "slice",
      "concatenate", "pad", "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder", "and",
      "or", "xor", "shift_left", "shift_right_logical", "negate", "abs", "sign", "exponential", "log", "sqrt", "rsqrt",
      "tanh", "logistic", "erfc", "floor", "not", "cosine", "sine", "log_plus_one", "exponential_minus_one", "compare",
      "select", "reduce", "reduce_window", "select_and_scatter", "dot_general", "convolution", "gather", "scatter",
      "all_reduce", "all_gather", "reduce_scatter", "replica_id"};
  // clang-format on
  return names[static_cast<std::size_t>(kind)];
}

/// A result of a program, and the parameter whose memory it takes over.
struct Result {
  Value value;
  int donated_by = -1;  // its number; -1: none
};

namespace detail {

inline std::string type_text(Element element, Dims const& dims) {
  auto text = std::string{"tensor<"};
  for (auto const d : dims) text += std::to_string(d) + "x";
  return text + std::string{text_of(element)} + ">";
}
inline std::string joined(Dims const& numbers) {
  auto text = std::string{};
  for (auto const n : numbers) text.append(text.empty() ? "" : ", ") += std::to_string(n);
  return text;
}
inline std::string listed(Dims const& numbers) { return "[" + joined(numbers) + "]"; }
inline std::string array_text(Dims const& numbers) {
  return numbers.empty() ? "array<i64>" : "array<i64: " + joined(numbers) + ">";
}

/// A number as a constant has it; of a float, all of its digits.
inline std::string number_text(double number, Element element) {
  if (!is_float(element))
    return element == Element::i1 ? (number != 0 ? "true" : "false")
                                  : std::to_string(static_cast<std::int64_t>(number));
  auto const bits = [&](std::string_view f32, std::string_view halves, std::string_view f16) {
    return std::string{element == Element::f32 ? f32 : element == Element::bf16 ? halves : f16};
  };
  if (std::isinf(number))
    return number > 0 ? bits("0x7F800000", "0x7F80", "0x7C00") : bits("0xFF800000", "0xFF80", "0xFC00");
  if (std::isnan(number)) return bits("0x7FC00000", "0x7FC0", "0x7E00");
  auto buffer     = std::array<char, 40>{};
  auto const made = std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(number),
                                  std::chars_format::scientific, 9);
  return {buffer.data(), made.ptr};
}

/// Writes the operations of a program, a line each; those with a region of their own take several.
class Writer {
 public:
  explicit Writer(Program const& program) : program_{&program}, names_(program.operations().size()) {
    for (std::size_t i = 0; i < program.parameters().size(); ++i)
      names_[static_cast<std::size_t>(program.parameters()[i])] = "%arg" + std::to_string(i);
  }

  /// Names the values that results need, and writes their operations.
  std::string body(std::vector<Result> const& results) {
    auto needed = std::vector<bool>(names_.size(), false);
    for (auto const& result : results) needed[static_cast<std::size_t>(result.value.id)] = true;
    for (auto i = names_.size(); i-- > 0;)
      if (needed[i])
        for (auto const x : program_->at(static_cast<int>(i)).in) needed[static_cast<std::size_t>(x)] = true;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (needed[i]) write(static_cast<int>(i));
    return std::move(text_);
  }

  std::string const& name(int id) const { return names_[static_cast<std::size_t>(id)]; }
  std::string type(int id) const { return type_text(program_->at(id).element, program_->at(id).dims); }

 private:
  /// Operands, in a row.
  std::string operands(Operation const& o) const {
    auto text = std::string{};
    for (auto const x : o.in) text.append(text.empty() ? "" : ", ") += name(x);
    return text;
  }
  std::string types(Operation const& o) const {
    auto text = std::string{};
    for (auto const x : o.in) text.append(text.empty() ? "" : ", ") += type(x);
    return "(" + text + ")";
  }
  static std::string scalar(Element element) { return type_text(element, {}); }
  /// A region that combines two numbers.
  static std::string region(std::string_view word, Element element) {
    auto const t = scalar(element);
    return "({\n    ^bb0(%a: " + t + ", %b: " + t + "):\n      %c = stablehlo." + std::string{word} + " %a, %b : " + t +
           "\n      stablehlo.return %c : " + t + "\n    })";
  }
  /// Writes a line with the neutral element of `word` as a constant, and returns its name.
  std::string neutral(std::string_view word, Element element) {
    auto const made = "%n" + std::to_string(next_++);
    text_.append("    ") += made + " = stablehlo.constant dense<" +
                            number_text(word == "add" ? 0.0 : -HUGE_VAL, element) + "> : " + scalar(element) + "\n";
    return made;
  }

  void write(int id) {
    auto const& o = program_->at(id);
    auto& named   = names_[static_cast<std::size_t>(id)];
    if (o.kind == Kind::parameter) return;
    if (o.kind == Kind::stop) {
      named = name(o.in[0]);
      return;
    }
    auto const line = says(o, id);
    named           = "%" + std::to_string(next_++);
    text_.append("    ") += named + " = " + line + "\n";
  }

  /// What stands to the right of a value's name.
  std::string says(Operation const& o, int id) {
    auto const op     = "stablehlo." + std::string{text_of(o.kind)};
    auto const result = type(id);
    auto const maps   = " : " + types(o) + " -> " + result;
    auto const with   = [&](std::string const& options) { return op + " " + operands(o) + ", " + options; };
    auto const quoted = "\"" + op + "\"(" + operands(o) + ") ";
    switch (o.kind) {
      case Kind::constant: return op + " dense<" + number_text(o.number, o.element) + "> : " + result;
      case Kind::iota: return op + " dim = " + joined(o.lists[0]) + " : " + result;
      case Kind::convert:
      case Kind::reshape: return op + " " + operands(o) + maps;
      case Kind::broadcast:
      case Kind::transpose: return with("dims = " + listed(o.lists[0])) + maps;
      case Kind::reverse: return with("dims = " + listed(o.lists[0])) + " : " + result;
      case Kind::slice: return op + " " + operands(o) + " " + ranges(o) + maps;
      case Kind::concatenate: return with("dim = " + joined(o.lists[0])) + maps;
      case Kind::pad:
        return with("low = " + listed(o.lists[0]) + ", high = " + listed(o.lists[1]) +
                    ", interior = " + listed(o.lists[2])) +
               maps;
      case Kind::erfc: return "chlo.erfc " + operands(o) + " : " + result + " -> " + result;
      case Kind::compare: {
        auto const e = program_->at(o.in[0]).element;
        return op + " " + std::string{o.word} + ", " + operands(o) + ", " +
               (is_float(e)         ? "FLOAT"
                : e == Element::i32 ? "SIGNED"
                                    : "UNSIGNED") +
               maps;
      }
      case Kind::select: return op + " " + operands(o) + " : " + type(o.in[0]) + ", " + result;
      case Kind::reduce: {
        auto const init = neutral(o.word, o.element);
        return op + "(" + operands(o) + " init: " + init + ") applies stablehlo." + std::string{o.word} +
               " across dimensions = " + listed(o.lists[0]) + " : (" + type(o.in[0]) + ", " + scalar(o.element) +
               ") -> " + result;
      }
      case Kind::reduce_window: {
        auto const init = neutral(o.word, o.element);
        return "\"" + op + "\"(" + operands(o) + ", " + init + ") <{window_dimensions = " + array_text(o.lists[0]) +
               ", window_strides = " + array_text(o.lists[1]) + "}> " + region(o.word, o.element) + " : (" +
               type(o.in[0]) + ", " + scalar(o.element) + ") -> " + result;
      }
      case Kind::select_and_scatter: {
        auto const init = neutral("add", o.element);
        auto const t    = scalar(o.element);
        return "\"" + op + "\"(" + operands(o) + ", " + init + ") <{window_dimensions = " + array_text(o.lists[0]) +
               ", window_strides = " + array_text(o.lists[1]) + "}> ({\n    ^bb0(%a: " + t + ", %b: " + t +
               "):\n      %c = stablehlo.compare GE, %a, %b, FLOAT : (" + t + ", " + t +
               ") -> tensor<i1>\n      stablehlo.return %c : tensor<i1>\n    }, " + region("add", o.element).substr(1) +
               " : (" + type(o.in[0]) + ", " + type(o.in[1]) + ", " + t + ") -> " + result;
      }
      case Kind::dot: {
        auto batch = std::string{};
        if (!o.lists[0].empty()) batch = "batching_dims = " + listed(o.lists[0]) + " x " + listed(o.lists[1]) + ", ";
        return with(batch + "contracting_dims = " + listed(o.lists[2]) + " x " + listed(o.lists[3]) +
                    ", precision = [" + precision() + ", " + precision() + "]") +
               maps;
      }
      case Kind::convolution: return convolution(o, op) + maps;
      case Kind::gather: return gather(o) + maps;
      case Kind::scatter: return scatter(o) + maps;
      case Kind::all_reduce: return quoted + "<{" + groups() + "}> " + region("add", o.element) + maps;
      case Kind::all_gather: return quoted + "<{all_gather_dim = 0 : i64, " + groups() + "}>" + maps;
      case Kind::reduce_scatter:
        return quoted + "<{" + groups() + ", scatter_dimension = 0 : i64}> " + region("add", o.element) + maps;
      case Kind::replica_id: return op + " : " + result;
      default: return op + " " + operands(o) + " : " + result;  // element by element
    }
  }

  /// How exact a product of its factors is. By default TPUs round float to 8 bits, and GPUs to 11.
  std::string precision() const {
    switch (program_->products()) {
      case Products::f32: return "HIGHEST";
      case Products::tf32: return "HIGH";
      default: return "DEFAULT";  // its factors are halves
    }
  }
  static std::string ranges(Operation const& o) {
    auto text = std::string{};
    for (std::size_t i = 0; i < o.lists[0].size(); ++i)
      text.append(text.empty() ? "" : ", ") +=
          std::to_string(o.lists[0][i]) + ":" + std::to_string(o.lists[1][i]) + ":" + std::to_string(o.lists[2][i]);
    return "[" + text + "]";
  }
  std::string convolution(Operation const& o, std::string const& op) const {
    auto const& l = o.lists;
    return op + "(" + operands(o) + ") dim_numbers = " + std::string{o.word} + ", window = {stride = " + listed(l[0]) +
           ", pad = [[" + std::to_string(l[1][0]) + ", " + std::to_string(l[2][0]) + "], [" + std::to_string(l[1][1]) +
           ", " + std::to_string(l[2][1]) + "]], lhs_dilate = " + listed(l[3]) + ", rhs_dilate = " + listed(l[4]) +
           "} {batch_group_count = " + std::to_string(l[5][1]) +
           " : i64, feature_group_count = " + std::to_string(l[5][0]) +
           " : i64, precision_config = [#stablehlo<precision " + precision() + ">, #stablehlo<precision " +
           precision() + ">]}";
  }
  std::string gather(Operation const& o) const {
    auto const ids = static_cast<std::int64_t>(program_->at(o.in[1]).dims.size());
    return "\"stablehlo.gather\"(" + operands(o) + ") <{dimension_numbers = #stablehlo.gather<offset_dims = [" +
           std::to_string(ids) +
           "], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = " + std::to_string(ids) +
           ">, indices_are_sorted = false, slice_sizes = array<i64: 1, " + std::to_string(o.dims.back()) + ">}>";
  }
  std::string scatter(Operation const& o) const {
    auto const ids = std::to_string(program_->at(o.in[1]).dims.size());
    return "\"stablehlo.scatter\"(" + operands(o) +
           ") <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [" +
           ids + "], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = " + ids +
           ">, unique_indices = false}> " + region("add", o.element);
  }
  std::string groups() const {
    auto all = Dims{};
    for (int i = 0; i < program_->replicas(); ++i) all.push_back(i);
    return "replica_groups = dense<[" + listed(all) + "]> : tensor<1x" + std::to_string(all.size()) + "xi64>";
  }

  Program const* program_;
  std::vector<std::string> names_;
  std::string text_;
  int next_ = 0;
};

}  // namespace detail

/// A program as a module of StableHLO with one function, which returns these results.
///
/// keeps   operations on which no result depends are left out
inline std::string text_of(Program const& program, std::vector<Result> const& results) {
  auto writer        = detail::Writer{program};
  auto const body    = writer.body(results);
  auto text          = std::string{"module @step {\n  func.func public @main("};
  auto const& inputs = program.parameters();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    text.append(i == 0 ? "" : ", ") += writer.name(inputs[i]) + ": " + writer.type(inputs[i]);
    for (std::size_t r = 0; r < results.size(); ++r)
      if (results[r].donated_by == static_cast<int>(i))
        text += " {tf.aliasing_output = " + std::to_string(r) + " : i32}";
  }
  auto names = std::string{}, types = std::string{};
  for (auto const& result : results) {
    names.append(names.empty() ? "" : ", ") += writer.name(result.value.id);
    types.append(types.empty() ? "" : ", ") += writer.type(result.value.id);
  }
  return text + ") -> (" + types + ") {\n" + body + "    return " + names + " : " + types + "\n  }\n}\n";
}

}  // namespace chorale::nn::stablehlo
