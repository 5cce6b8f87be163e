// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/names.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::nn::graph {

/// Stands for the device of a trace that only the plan is computed from: the plan is equal on all devices.
struct NoDevice {};

/// An index of a record as a std::size_t.
constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// The address of one input, output or variable of a stage.
struct Port {
  void* data             = nullptr;
  float* gradient        = nullptr;  // null where nobody needs it
  RowGradients* rows     = nullptr;  // of a variable whose gradient is rows
  std::string (*field)() = nullptr;  // name of the field that ids come from
};

/// All addresses of a stage.
struct Ports {
  Span<Port const> in, out, variables;
  std::byte* workspace = nullptr;  // 64-byte aligned; kept until backward
};

/// The rows of a batch along the ragged dimension of one input. Ragged values lie in memory without padding: all
/// positions of the first row, then of the second, and so on.
struct RaggedRows {
  static constexpr std::size_t block = 64;  // positions that kernels take at once

  Span<int const> lengths;                    // positions of each row
  Span<std::size_t const> starts, by_length;  // first position of each; longest rows first
  std::size_t positions = 0;                  // of all rows
  std::size_t room      = 0;                  // of buffers: a multiple of block
};

/// Arguments with which a stage is made.
struct StageSite {
  void* runtime              = nullptr;  // Kernels<D>::runtime
  int rows                   = 0;
  int number                 = 0;  // of the call: see CallRecord
  bool wants_dx              = false;
  bool plain                 = true;     // true: y must be rows of plain numbers
  Span<void const* const> in = {};       // layouts of the inputs, as from Ops::layout
  RaggedRows const* ragged   = nullptr;  // of each input of the network
};

/// What a stage finds in its workspace again.
///
///   always         what it left there at any time; zeros before: memory that nothing else uses
///   in_backward    what the last forward left there
///   nothing        it writes before it reads
enum class Finds { always, in_backward, nothing };

}  // namespace chorale::nn::graph

namespace chorale::nn::stablehlo {

struct Call;

}  // namespace chorale::nn::stablehlo

namespace chorale::nn::graph {

/// The functions and constants of one layer on one device, for inputs of given shapes: everything that the executor
/// knows about it. One constant for all calls of this kind.
struct Ops {
  std::size_t size = 0, align = 1;  // of the object that `make` constructs
  void (*make)(void* stage, StageSite const&)                 = nullptr;
  void (*destroy)(void* stage)                                = nullptr;
  std::size_t (*workspace)(void const* stage)                 = nullptr;  // bytes
  void (*bind)(void* stage, Ports const&)                     = nullptr;
  void (*read_from)(void* stage, std::size_t in, void const*) = nullptr;
  void (*look)(void* stage, std::size_t in, void const*)      = nullptr;  // at an input before a device has it, or null
  void (*forward)(void* stage, Pass const&)                   = nullptr;
  void (*backward)(void* stage, Pass const&)                  = nullptr;
  void (*move)(void* stage, std::size_t variable, float* gradient) = nullptr;  // where backward writes it; null: where
                                                                               // bind() has said, always
  void (*add)(void* stage, Pass const&)    = nullptr;  // backward by variables that adds to their
                                                       // gradients, where backward sets them
  bool (*can_add)(void const* stage)       = nullptr;  // true: add may be called; null: it may not
  void const* (*layout)(void const* stage) = nullptr;  // Kernels<D>::layout of y; null: plain rows
  bool (*passes_all)(void const* stage)    = nullptr;  // of a stage that passes: to every input
  Finds (*finds)(void const* stage)        = nullptr;
  void (*write)(stablehlo::Call&)          = nullptr;  // of AsText: see nn/lowering/call.hpp
  bool overwrites                          = false;    // y may be x, and dx may be dy
  bool renames                             = false;    // y is x, except where x is an input
  bool keeps_x = true, keeps_y = false;                // backward reads them
  bool passes           = false;                       // dx is dy, for each input
  bool adds             = false;                       // backward adds to gradients of variables
  bool takes_layouts    = false;                       // false: its inputs are plain rows
  bool keeps_layout     = false;                       // y has the layout of x
  bool apart            = false;                       // backward obeys by_variables and by_input of
                                                       // a pass: first the one, later the other
  int joined            = 0;                           // channels that it adds up over replicas
  std::string_view axis = {};                          // of a mesh, over which the layer is split
  int axis_size         = 1;
  bool other_rows       = false;  // ranks along the axis may have other rows
  bool whole_share      = false;  // needs all rows of a share at once
};

/// What a rank has of a value: the axis along which each rank has a part of every vector, and the axis along which it
/// has a part of the positions of every sequence. Empty: all of it.
struct Held {
  std::string_view columns{}, positions{};

  constexpr bool whole() const { return columns.empty() && positions.empty(); }
  friend constexpr bool operator==(Held const&, Held const&) = default;
};

/// True if the moving averages of a layer are frozen, so that it computes in training as in evaluation.
///
/// uses      its variables; frozen: of all variables, see Pass
/// spec_of   called as spec_of(v): the VariableSpec of variable v
template <class SpecOf> constexpr bool keeps_averages(Span<int const> uses, Span<char const> frozen, SpecOf&& spec_of) {
  auto keeps = false;
  for (auto const v : uses) {
    if (spec_of(v).momentum == 0) continue;
    if (frozen.empty() || frozen[at(v)] == 0) return false;
    keeps = true;
  }
  return keeps;
}

/// Calls f(pass), or f of a pass as in evaluation if the moving averages of a layer are frozen.
template <class F> constexpr void in_pass(Pass const& pass, bool keeps_averages, F&& f) {
  if (!keeps_averages) return f(pass);
  auto part     = pass;
  part.training = false;
  f(part);
}

/// A value of the network: an input, or an output of a call.
struct ValueRecord {
  int call               = -1;       // that writes it; -1: the batch
  std::size_t size       = 0;        // elements of a row, or of one position
  std::size_t bytes      = 0;        // of a row, or of one position
  int ragged             = -1;       // input that has its lengths; -1: none
  bool number            = false;    // true if it is float, and has a gradient
  bool asked             = false;    // an input whose gradient is asked for
  bool on_request        = false;    // and no step computes it
  std::string (*field)() = nullptr;  // of ids: name of the field they come from
  std::string (*shape)() = nullptr;  // its dimensions, for people
  Held held{};
};

/// One call of a layer: ranges of the arrays of a Trace.
struct CallRecord {
  Ops const* ops = nullptr;
  int layer      = -1;
  int first_in = 0, ins = 0, first_out = 0, outs = 0, first_use = 0, uses = 0;
  std::size_t products  = 0;        // multiplications of one row
  std::size_t inner     = 0;        // of these, with both factors from the layer
  std::string (*text)() = nullptr;  // the layer and its options, in one word
  int number            = 0;        // position among the layers: names its stream
                                    // of random numbers
  int recompute         = -1;       // the Recompute that called it; -1: none
  std::size_t elements  = 0;        // of the variables that it uses
};

/// A variable of the network.
struct VariableRecord {
  VariableSpec spec{};
  int call          = -1;  // the first that uses it
  int users         = 0;
  int users_by_rows = 0;      // that can give its gradient as rows
  std::string_view summed{};  // axis over which gradients are added up
};

/// A layer of the network: one object, or one temporary.
struct LayerRecord {
  std::string_view kind{}, name{};  // "dense", and the name it was given
  int first = 0, variables = 0;
};

/// Mistakes that only values show, found while the network is traced.
enum class Mistake {
  none,
  refused,
  two_shapes_of_one_layer,
  two_calls_of_moving_layer,
  moving_layer_in_recompute,
  output_is_input,
  part_of_vectors,
  part_of_positions,
  no_part_of_vectors,
  no_part_of_positions,
  other_parts,
  variables_of_other_parts,
  output_of_positions
};

/// Numbers of records of a trace.
struct Counts {
  std::size_t values = 0, calls = 0, ins = 0, uses = 0, variables = 0, layers = 0, inputs = 0, outputs = 0;
  std::size_t numbers = 0;  // of layers, counted by CallRecord::number
  std::size_t cuts    = 0;
};

/// What the call operator of a network did: which layer was called with which values.
struct Trace {
  std::vector<ValueRecord> values;
  std::vector<CallRecord> calls;
  std::vector<int> ins, uses;  // values, variables
  std::vector<VariableRecord> variables;
  std::vector<LayerRecord> layers;
  std::vector<int> inputs, outputs;    // values
  std::vector<int> cuts;               // calls with which a stage of a pipeline begins
  int number    = 0;                   // of the next call
  int recompute = -1, recomputes = 0;  // that calls now, see nn::Recompute; of all
  Mistake mistake = Mistake::none;

  constexpr Counts counts() const {
    return {values.size(), calls.size(),  ins.size(),     uses.size(), variables.size(),
            layers.size(), inputs.size(), outputs.size(), at(number),  cuts.size()};
  }

  /// Appends a layer and its variables. Returns its index.
  constexpr int add_layer(std::string_view kind, std::string_view name, Span<VariableSpec const> specs) {
    auto const first = static_cast<int>(variables.size());
    for (auto const& spec : specs) variables.push_back({spec, static_cast<int>(calls.size()), 0});
    layers.push_back({kind, name, first, static_cast<int>(specs.size())});
    return static_cast<int>(layers.size()) - 1;
  }

  /// True if a layer has moving statistics.
  constexpr bool is_moving(int layer) const {
    auto const& l = layers[at(layer)];
    for (auto v = at(l.first); v < at(l.first + l.variables); ++v)
      if (!variables[v].spec.trained()) return true;
    return false;
  }

  /// True if a layer that is called again has variables of the shapes that it had before.
  constexpr bool has_variables(int layer, Span<VariableSpec const> specs) const {
    auto const& l = layers[at(layer)];
    if (at(l.variables) != specs.size()) return false;
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (variables[at(l.first) + i].spec.dims != specs[i].dims) return false;
    return true;
  }

  /// Appends a call of `layer` and its outputs. Returns the index of the first output.
  constexpr int add_call(Ops const* ops, int layer, Span<int const> in, Span<ValueRecord const> out,
                         std::size_t products, std::size_t inner, std::string (*text)(), bool gives_rows) {
    auto const& l   = layers[at(layer)];
    auto const call = static_cast<int>(calls.size());
    auto elements   = std::size_t{0};
    for (auto v = at(l.first); v < at(l.first + l.variables); ++v) elements += variables[v].spec.size();
    auto const made  = CallRecord{ops,
                                 layer,
                                 static_cast<int>(ins.size()),
                                 static_cast<int>(in.size()),
                                 static_cast<int>(values.size()),
                                 static_cast<int>(out.size()),
                                 static_cast<int>(uses.size()),
                                 l.variables,
                                 products,
                                 inner,
                                 text,
                                 number++,
                                 recompute,
                                 elements};
    auto const field = values[at(in[0])].field;
    for (auto const value : in) ins.push_back(value);
    for (auto value : out) {
      value.call = call;
      if (!value.number) value.field = field;
      values.push_back(value);
    }
    for (int v = l.first; v < l.first + l.variables; ++v) {
      uses.push_back(v);
      ++variables[at(v)].users;
      if (gives_rows || variables[at(v)].spec.by_rows) ++variables[at(v)].users_by_rows;
    }
    calls.push_back(made);
    return made.first_out;
  }
};

/// A Trace in arrays.
template <Counts N> struct Fixed {
  std::array<ValueRecord, N.values> values{};
  std::array<CallRecord, N.calls> calls{};
  std::array<int, N.ins> ins{};
  std::array<int, N.uses> uses{};
  std::array<VariableRecord, N.variables> variables{};
  std::array<LayerRecord, N.layers> layers{};
  std::array<int, N.inputs> inputs{};
  std::array<int, N.outputs> outputs{};
  std::array<int, N.cuts> cuts{};
  Mistake mistake = Mistake::none;

  constexpr explicit Fixed(Trace const& t) : mistake{t.mistake} {
    auto const copy = [](auto const& from, auto& to) {
      for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i];
    };
    copy(t.values, values), copy(t.calls, calls), copy(t.ins, ins), copy(t.uses, uses);
    copy(t.variables, variables), copy(t.layers, layers), copy(t.inputs, inputs), copy(t.outputs, outputs);
    copy(t.cuts, cuts);
  }
};

/// The names of all variables of a network. Layers without a name are numbered as in Keras: "dense", "dense_1".
template <Counts N> class Names {
 public:
  constexpr explicit Names(Fixed<N> const& g) {
    for (auto const& layer : g.layers) {
      if (layer.variables == 0) continue;
      auto const name   = layer.name.empty() ? layer.kind : layer.name;
      auto const before = times_before(name);
      is_unique_        = is_unique_ && (before == 0 || layer.name.empty());
      for (auto v = at(layer.first); v < at(layer.first + layer.variables); ++v)
        names_[v] = detail::numbered(name, before, g.variables[v].spec.name);
    }
    for (auto const& layer : g.layers)
      for (std::size_t k = 0; k < count_ && layer.variables > 0 && !layer.name.empty(); ++k)
        is_unique_ = is_unique_ && !is_numbered(layer.name, seen_[k]);
  }

  constexpr std::array<Name, N.variables> const& names() const { return names_; }
  /// False if another layer also has a name that was given.
  constexpr bool is_unique() const { return is_unique_; }

 private:
  struct Seen {
    std::string_view name{};
    int times = 0;
  };

  /// Times that a name came before. Compilers limit the steps of a constant expression, so each name is stored once.
  constexpr int times_before(std::string_view name) {
    std::size_t k = 0;
    while (k < count_ && seen_[k].name != name) ++k;
    if (k == count_) seen_[count_++].name = name;
    return seen_[k].times++;
  }
  /// True if `name` is kind_1, kind_2, ..., a name that a layer without a name has.
  static constexpr bool is_numbered(std::string_view name, Seen const& kind) {
    auto const length = kind.name.size();
    if (name.size() < length + 2 || name[length] != '_' || name.substr(0, length) != kind.name) return false;
    int number = 0;
    for (char const c : name.substr(length + 1)) {
      if (c < '0' || c > '9' || number >= kind.times) return false;
      number = 10 * number + (c - '0');
    }
    return number > 0 && number < kind.times;
  }

  std::array<Name, N.variables> names_{};
  std::array<Seen, N.layers> seen_{};
  std::size_t count_ = 0;
  bool is_unique_    = true;
};

}  // namespace chorale::nn::graph
