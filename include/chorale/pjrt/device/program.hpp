// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api_programs.hpp>
#include <chorale/pjrt/device/error.hpp>
#include <chorale/pjrt/device/plugin.hpp>
#include <chorale/pjrt/device/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::pjrt {

/// Bytes that a compiled program needs on each device.
struct MemoryUse {
  std::int64_t code, arguments, results;
  std::int64_t aliased;  // of the results: memory of arguments
  std::int64_t temporary;
  std::int64_t peak;  // 0 where the plug-in does not tell
};

/// The program as a plug-in's compiler left it.
struct OptimizedText {
  std::string format;  // "hlo_with_config", "hlo", "mlir"
  std::string bytes;
};

namespace detail {

/// Serialised CompileOptionsProto of XLA: one program on each of some devices.
///
/// replicas   at least 1; a plug-in aborts the process when this field is missing
/// devices    their ids, one per replica; empty: the plug-in chooses them
/// source     XLA, compile_options.proto: executable_build_options is field 3, in it device_ordinal 1, num_replicas 4,
///            num_partitions 5 and device_assignment 9
inline std::string compile_options(int replicas, std::span<int const> devices) {
  auto const varint = [](std::string& to, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
    to += static_cast<char>(value);
  };
  auto const number = [&](std::string& to, int field, std::uint64_t value) {
    varint(to, static_cast<std::uint64_t>(field) << 3);
    varint(to, value);
  };
  auto const message = [&](std::string& to, int field, std::string const& inner) {
    varint(to, (static_cast<std::uint64_t>(field) << 3) | 2);
    varint(to, inner.size());
    to += inner;
  };
  auto build = std::string{};
  number(build, 1, ~std::uint64_t{0});  // device_ordinal -1: none in particular
  number(build, 4, static_cast<std::uint64_t>(replicas));
  number(build, 5, 1);
  if (!devices.empty()) {
    auto ids = std::string{}, computation = std::string{}, assignment = std::string{};
    for (int const id : devices) varint(ids, static_cast<std::uint64_t>(id));
    message(computation, 1, ids);
    number(assignment, 1, devices.size());
    number(assignment, 2, 1);
    message(assignment, 3, computation);
    message(build, 9, assignment);
  }
  auto options = std::string{};
  message(options, 3, build);
  return options;
}

/// Throws the error of a compilation, with the line of the text that the plug-in names.
[[noreturn]] inline void fail_compile(Plugin const& plugin, api::Error* error, std::string_view text) {
  auto const [code, said] = plugin.take(error);
  auto const at           = position_in(said);
  if (at.line == 0)
    throw CompileError{code,
                       said,
                       0,
                       0,
                       sentence("the PJRT plug-in {} cannot compile the program: {} (code {}, {}).", plugin.path(),
                                first_line(said), code, code_name(code)),
                       what_to_try(said)};
  throw CompileError{code, said, at.line, at.column,
                     sentence("the PJRT plug-in {} cannot compile the program, line {}, column {}: {}, in `{}`.",
                              plugin.path(), at.line, at.column, at.fault, line_of(text, at.line, at.column))};
}

inline api::Program program_of(std::string& text) {
  constexpr std::string_view format = "mlir";
  return {.code = text.data(), .code_size = text.size(), .format = format.data(), .format_size = format.size()};
}

}  // namespace detail

/// A compiled program: what can be asked about it, whether or not its devices are there.
///
/// keeps   movable; the plug-in's object ends with it
class CompiledProgram {
 public:
  CompiledProgram(Plugin plugin, api::Executable* handle) : plugin_{plugin}, handle_{handle} {}
  CompiledProgram(CompiledProgram&& other) noexcept
      : plugin_{other.plugin_}, handle_{std::exchange(other.handle_, nullptr)} {}
  CompiledProgram& operator=(CompiledProgram&& other) noexcept {
    std::swap(plugin_, other.plugin_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CompiledProgram() {
    if (handle_ == nullptr) return;
    auto record = api::ProgramDestroy{.handle = handle_};
    plugin_.drop(plugin_.try_call(record));
  }

  int replicas() const { return static_cast<int>(ask<api::ProgramReplicas>().value); }
  std::int64_t code_bytes() const { return ask<api::ProgramCodeSize>().value; }

  /// Shapes of the results, as the plug-in has them.
  std::vector<Shape> results() const {
    auto const types = ask<api::OutputTypes>();
    auto dims        = api::OutputDims{.executable = handle_};
    plugin_.call(dims);
    CHORALE_ENSURES(types.size == dims.num_outputs, "a plug-in gives as many types as shapes of results");
    auto shapes      = std::vector<Shape>{};
    auto const* next = dims.dims;
    for (std::size_t i = 0; i < types.size; next += dims.dim_sizes[i++])
      shapes.push_back({static_cast<ElementType>(types.values[i]), Dims{std::span{next, dims.dim_sizes[i]}}});
    return shapes;
  }

  /// throws  PluginError where the plug-in does not have this
  MemoryUse memory() const {
    auto record = api::MemoryStats{.executable = handle_};
    plugin_.call(record);
    return {record.code, record.arguments, record.outputs, record.aliased, record.temporary, record.peak};
  }

  /// throws  PluginError where the plug-in does not have this
  OptimizedText optimized() const {
    auto program = api::Program{};
    auto record  = api::OptimizedProgram{.executable = handle_, .program = &program};
    plugin_.call(record);  // says the size
    auto bytes   = std::string(program.code_size, '\0');
    program.code = bytes.data();
    plugin_.call(record);
    return {std::string{program.format, program.format_size}, std::move(bytes)};
  }

  api::Executable* handle() const { return handle_; }

 private:
  template <class Record> Record ask() const {
    auto record = Record{.handle = handle_};
    plugin_.call(record);
    return record;
  }

  Plugin plugin_;
  api::Executable* handle_;
};

}  // namespace chorale::pjrt
