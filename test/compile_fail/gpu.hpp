// SPDX-License-Identifier: Apache-2.0
//
// A device whose memory is not that of the host, for sentences about what computes on Cpu only.
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <vector>

struct Gpu : chorale::Cpu {
  static constexpr chorale::Memory memory = chorale::Memory::cuda;
  using Cpu::Cpu;

  static std::vector<Gpu> visible() { return std::vector<Gpu>(1); }
};
template <>
struct chorale::Kernels<Gpu> : chorale::Kernels<chorale::Cpu> {};
