// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/lowering/text.hpp>
#include <chorale/pjrt/device/pjrt.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

namespace chorale::test {

namespace hlo {

inline std::uint32_t bits_of(Element element, double x) {
  if (is_float(element)) return std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(x));
}
inline double number_of(Element element, std::uint32_t bits) {
  if (is_float(element)) return static_cast<double>(std::bit_cast<float>(bits));
  return element == Element::i32 ? static_cast<double>(static_cast<std::int32_t>(bits)) : static_cast<double>(bits);
}

}  // namespace hlo

/// What the plug-in of CHORALE_PJRT_PLUGIN, one for CPUs, makes of a program; nothing where none is named.
///
/// arguments   [replica][i], of 32 bits each, as are the values wanted
/// returns     [replica][i] of these
inline std::optional<std::vector<std::vector<Numbers>>> on_plugin(nn::stablehlo::Program const& program,
                                                                  std::vector<std::vector<Numbers>> const& arguments,
                                                                  std::vector<nn::stablehlo::Value> const& wanted) {
  auto const* path = std::getenv("CHORALE_PJRT_PLUGIN");
  if (path == nullptr || *path == '\0') return std::nullopt;
  auto const n      = arguments.size();
  auto const client = Pjrt::open(path, {.devices = 3}).client();
  auto results      = std::vector<nn::stablehlo::Result>{};
  for (auto const value : wanted) results.push_back({value});
  auto compiled = client.compile(text_of(program, results), static_cast<int>(n));
  auto buffers  = std::vector<std::vector<pjrt::Buffer>>(n);
  auto given    = std::vector<std::vector<pjrt::Buffer>>{};
  auto in       = std::vector<std::vector<pjrt::Buffer*>>(n);
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < arguments[r].size(); ++i) {
      auto words   = std::vector<std::uint32_t>{};
      auto const e = program.at(program.parameters()[i]).element;
      for (auto const x : arguments[r][i]) words.push_back(hlo::bits_of(e, x));
      buffers[r].push_back(client.put(words.data(), compiled.signature().arguments[i], static_cast<int>(r)));
    }
    for (auto& buffer : buffers[r]) in[r].push_back(&buffer);
  }
  compiled.run(in, given);
  auto made = std::vector<std::vector<Numbers>>(n);
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      auto words = std::vector<std::uint32_t>(static_cast<std::size_t>(nn::stablehlo::count(wanted[i].dims())));
      given[r][i].get(words.data(), words.size() * sizeof words[0]);
      auto& numbers = made[r].emplace_back();
      for (auto const w : words) numbers.push_back(hlo::number_of(wanted[i].element(), w));
    }
  return made;
}

}  // namespace chorale::test
