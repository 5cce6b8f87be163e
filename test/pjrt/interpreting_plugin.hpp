// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/pjrt/fake_plugin.hpp"
#include "test/support/stablehlo_interpreter.hpp"
#include "test/support/stablehlo_parser.hpp"

#include <chorale/core/half.hpp>
#include <chorale/pjrt/device/pjrt.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The fake plug-in with a compiler: it reads the text of a program, and the interpreter of the tests computes it. So
// what trains on Pjrt is tested where there is no plug-in.

namespace chorale::test::fake {

namespace detail {

template <class T, class As> void copy_numbers(api::Buffer const& from, hlo::Numbers& to) {
  auto one = T{};
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::memcpy(&one, from.bytes.data() + i * sizeof one, sizeof one);
    to[i] = static_cast<double>(static_cast<As>(one));
  }
}
template <class T, class As> void copy_numbers(hlo::Numbers const& from, api::Buffer& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    auto const one = static_cast<T>(static_cast<As>(from[i]));
    std::memcpy(to.bytes.data() + i * sizeof one, &one, sizeof one);
  }
}
/// Numbers to or from a buffer of 32 bits, of halves, or of truths.
template <class From, class To> void copy(hlo::Element element, From&& from, To&& to) {
  using hlo::Element;
  switch (element) {
    case Element::f32: return copy_numbers<float, float>(from, to);
    case Element::bf16: return copy_numbers<bf16, float>(from, to);
    case Element::f16: return copy_numbers<fp16, float>(from, to);
    case Element::i32: return copy_numbers<std::int32_t, std::int32_t>(from, to);
    case Element::u32: return copy_numbers<std::uint32_t, std::uint32_t>(from, to);
    case Element::i1: return copy_numbers<std::uint8_t, std::uint8_t>(from, to);
  }
}

inline void interpret(api::Execute& call) {
  auto const& parsed  = *static_cast<hlo::Parsed const*>(call.executable->parsed.get());
  auto const& program = parsed.program;
  auto arguments      = std::vector<std::vector<hlo::Numbers>>(call.num_devices);
  for (std::size_t d = 0; d < call.num_devices; ++d)
    for (std::size_t i = 0; i < call.num_arguments; ++i) {
      auto const& typed = program.at(program.parameters().at(i));
      auto& numbers     = arguments[d].emplace_back(static_cast<std::size_t>(nn::stablehlo::count(typed.dims)));
      copy(typed.element, std::as_const(*call.arguments[d][i]), numbers);
    }
  auto const made = hlo::Interpreter{program, arguments, parsed.results};
  for (std::size_t d = 0; d < call.num_devices; ++d)
    for (std::size_t r = 0; r < parsed.results.size(); ++r)
      copy(parsed.results[r].element(), made(parsed.results[r], d), *call.results[d][r]);
}

}  // namespace detail

/// Where the interpreter computes.
struct InterpretingTable : Table {
  InterpretingTable() {
    set<api::ClientCompile>([](auto* call) -> api::Error* {
      auto program = api::Executable{};
      if (auto* const error = compile(*call->program, {call->options, call->options_size}, program)) return error;
      auto const text = std::string{call->program->code, call->program->code_size};
      auto parsed     = std::shared_ptr<void>{};
      try {
        parsed = std::make_shared<hlo::Parsed>(text, static_cast<int>(program.replicas));
      } catch (std::exception const& error) { return fail(2, error.what()); }
      ++world().executables;
      call->executable = new api::LoadedExecutable{program, {}, text, std::move(parsed)};
      for (int const id : read_options({call->options, call->options_size}).devices)
        call->executable->devices.push_back(call->client->list[static_cast<std::size_t>(id)]);
      return nullptr;
    });
    set<api::Execute>([](auto* call) { return execute(call, detail::interpret); });
  }
};

/// The fake plug-in, computing.
inline pjrt::Plugin interpreting_plugin() {
  static auto const table = InterpretingTable{};
  return pjrt::Plugin::linked(&table.head, "the interpreter");
}

/// Devices that compute: of the interpreter and, where CHORALE_PJRT_PLUGIN names a plug-in for CPUs, of that.
inline std::vector<Pjrt> computing_devices(int each) {
  auto all = std::vector{Pjrt::open(interpreting_plugin(), {.devices = each})};
  if (auto const* path = std::getenv("CHORALE_PJRT_PLUGIN"); path != nullptr && *path != '\0')
    all.push_back(Pjrt::open(path, {.devices = each}));
  else if (static auto said = false; !std::exchange(said, true))
    std::printf("SKIPPED: training on a plug-in, beside the interpreter: CHORALE_PJRT_PLUGIN names none\n");
  return all;
}

}  // namespace chorale::test::fake
