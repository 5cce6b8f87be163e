// SPDX-License-Identifier: Apache-2.0
//
// Devices whose memory is not that of the host, for sentences about what computes on Cpu only.
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

struct Gpu : chorale::Cpu {
  static constexpr chorale::Memory memory = chorale::Memory::cuda;
  using Cpu::Cpu;

  static std::vector<Gpu> visible() { return std::vector<Gpu>(1); }
};
template <> struct chorale::Kernels<Gpu> : chorale::Kernels<chorale::Cpu> {};

/// One that queues its work. Its kernels are those of the host: nothing is linked.
struct Queue : chorale::Cpu {
  static constexpr chorale::Memory memory = chorale::Memory::cuda;
  using Cpu::Cpu;

  static std::vector<Queue> visible() { return std::vector<Queue>(1); }
  bool replays() const { return false; }
};
template <> struct chorale::Kernels<Queue> : chorale::Kernels<chorale::Cpu> {
  struct runtime : Kernels<Cpu>::runtime {
    using Kernels<Cpu>::runtime::runtime;
    void synchronize();
    void const* fetch(std::size_t input, void const* x, std::size_t bytes);
  };
  static void synchronize();
  static void zero(std::size_t n, float* x);
  using Kernels<Cpu>::squared_error, Kernels<Cpu>::sparse_cross_entropy;
  static void gather(std::size_t, int, int, float const*, int const*, float*);
  static void gather_back(std::size_t, int, int, int const*, float const*, float*);
  static void squared_error(std::size_t, std::size_t, float const*, float const*, float*, SumOfRows);
  static void sparse_cross_entropy(std::size_t, std::size_t, float const*, int const*, float*, SumOfRows);

  struct Step {
    explicit Step(std::size_t rows);
    template <class T> T const* fetch(T const* targets, std::size_t, std::size_t = 0) { return targets; }
    Pass tell(Pass pass);
    void begin();
    void begin(Span<float> gradients);
    void begin_behind();
    void forget_bad();
    SumOfRows sum_to(float* sum);
    Span<float> own_sums();
    void find_bad(Span<float const> values, std::size_t begin, std::size_t end, float const* loss = nullptr);
    std::uint64_t const* bad() const;
    void keep(float const* header);
    void end();
    struct Kind {
      bool checks;
      float loss_scale;
      bool ahead = false, bad_stays = false;
    };
    template <class Work> void replay(Kind, Work&& work) { work(); }
    std::size_t nodes() const;
    std::optional<std::size_t> first_bad() const;
    std::optional<std::size_t> first_bad(std::size_t turn) const;
    Span<float const> sums() const;
    Span<float const> sums(std::size_t turn) const;
    std::size_t turn();
    void mark_copied();
    void wait_copied() const;
    void mark_ended();
    void wait_ended(std::size_t turn) const;
  };
  struct Unless {
    std::uint64_t const* bad;
  };
};
