// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/tensor/cpu/onednn_api.hpp>
#include <chorale/tensor/kernels.hpp>

#include <sys/mman.h>
#include <dnnl.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace chorale::onednn {

inline constexpr auto f32 = dnnl::memory::data_type::f32;

inline std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// ReLUs that other kernels apply as they write their y, which saves a pass over it, and another in backward. A ReLU
/// that writes over its x asks; stages are bound from the last one, so the kernel that writes x hears of it in time.
class Relus {
 public:
  /// Passes of a ReLU that a kernel takes: forward alone, or both, if it knows in backward where y is 0.
  enum class Taken { nothing, forward, both };

  /// Asks the kernel that writes y to apply a ReLU in place. Returns the number of the question.
  std::size_t ask(float const* y) {
    all_.push_back({y, Taken::nothing, true});
    return all_.size() - 1;
  }
  /// Takes the ReLU that was asked of the kernel that writes y. Returns false if there is none.
  bool take(float const* y, Taken what) {
    for (auto& one : all_)
      if (one.y == y && one.open) return (one.taken = what, one.open = false, true);
    return false;
  }
  Taken taken(std::size_t question) const { return all_[question].taken; }

  std::size_t asked() const { return all_.size(); }
  /// Withdraws the questions about y below a number, as its writer is bound: what kernels before it write there is
  /// another value.
  void withdraw(float const* y, std::size_t below) {
    for (std::size_t i = 0; i < below; ++i)
      if (all_[i].y == y) all_[i].open = false;
  }

 private:
  struct One {
    float const* y;
    Taken taken;
    bool open;
  };
  std::vector<One> all_;
};

/// Makes an engine, once there is memory for the code that oneDNN generates at its first product: it does not look
/// whether it got that memory, and would end the process.
///
/// throws  OutOfMemory
inline dnnl::engine make_engine() {
  constexpr auto needed      = std::size_t{16} << 20;  // oneDNN 2.7 takes 6 MB with AVX-512
  static auto const has_code = [] {
    auto* const room = ::mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
      throw OutOfMemory{"oneDNN needs " + std::to_string(needed) +
                            " bytes of memory for the code of its products, and "
                            "this process may not have as many more.",
                        "more memory, or a higher limit of it (ulimit -v)."};
    ::munmap(room, needed);
    auto x = std::array<float, 64>{}, y = x;
    return dnnl_sgemm('N', 'N', 8, 8, 8, 1, x.data(), 8, x.data(), 8, 0, y.data(), 8) == dnnl_success;
  }();
  CHORALE_ENSURES(has_code, "oneDNN cannot compute a product of 8 by 8 numbers");
  return {dnnl::engine::kind::cpu, 0};
}

/// What the kernels of one replica share: oneDNN's engine and queue.
struct Runtime {
  dnnl::engine engine = make_engine();
  dnnl::stream stream{engine};
  Products rounds_to = Products::f32;  // set before kernels are made
  Relus relus{};

  /// Type of the factors of products. Without AMX oneDNN has nothing faster than float.
  dnnl::memory::data_type factors() const {
    return rounds_to == Products::bf16 && has_amx() ? dnnl::memory::data_type::bf16 : f32;
  }

  static bool has_amx() {
    constexpr auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
  }
};

/// A line that says what a CPU does with products that are to be rounded; empty for float.
inline std::string text_of_products(Products asked, bool has_amx = Runtime::has_amx()) {
  if (asked == Products::bf16 && has_amx) return "products: factors are rounded to bf16, by AMX\n";
  if (asked == Products::bf16) return "products: in float, as this CPU has no AMX for bf16\n";
  if (asked == Products::fp16) return "products: in float, as fp16 is for GPUs\n";
  return {};
}

/// Layout of images as users see them: (B, H, W, C), channels last.
inline desc image(int rows, int height, int width, int channels) {
  return {
      {rows, channels, height, width}, f32, channels == 1 ? tag::nchw : tag::nhwc};  // the same bytes for one channel
}

/// Layout of rows of numbers: (B, N).
inline desc matrix(int rows, int columns) { return {{rows, columns}, f32, tag::ab}; }

/// Makes primitives take scratch memory from the caller: none is allocated in a step, and threads share none.
inline dnnl::primitive_attr user_scratchpad() {
  auto attributes = dnnl::primitive_attr{};
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

/// One oneDNN primitive with its operands, prepared once and executed every step.
class Call {
 public:
  struct Operand {
    int argument;  // DNNL_ARG_...
    desc layout;
    void* data;
  };

  Call() = default;
  Call(Runtime const& runtime, dnnl::primitive primitive, std::initializer_list<Operand> operands)
      : stream_{runtime.stream}, primitive_{std::move(primitive)} {
    for (auto const& operand : operands) {
      if (operand.layout.get_size() == 0) continue;  // a primitive that needs no scratch, say
      memories_.at(count_)  = dnnl::memory{operand.layout, runtime.engine, operand.data};
      arguments_.at(count_) = {operand.argument, memories_[count_].get()};
      ++count_;
    }
  }

  explicit operator bool() const { return count_ > 0; }

  /// Makes the call read (or write) one operand at another address from now on.
  void point(int argument, float const* data) {
    for (std::size_t i = 0; i < count_; ++i)
      if (arguments_[i].arg == argument) memories_[i].set_data_handle(const_cast<float*>(data));
  }

  void operator()() const {
    auto const status =
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(count_), arguments_.data());
    CHORALE_ENSURES(status == dnnl_success, "oneDNN returned status " + std::to_string(status));
  }

 private:
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::array<dnnl::memory, 8> memories_{};
  std::array<dnnl_exec_arg_t, 8> arguments_{};
  std::size_t count_ = 0;
};

/// Cuts one block of workspace into 64-byte aligned pieces. Without a base it only adds up what is needed; with one it
/// returns the pieces.
class Cutter {
 public:
  explicit Cutter(std::byte* base = nullptr) : base_{base} {}

  float* take(desc const& layout) { return reinterpret_cast<float*>(take_bytes(layout.get_size())); }
  float* take_floats(std::size_t n) { return reinterpret_cast<float*>(take_bytes(n * sizeof(float))); }
  std::byte* take_bytes(std::size_t bytes) {
    auto* const piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(bytes);
    return piece;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// A call that copies from one layout to another.
inline Call reorder(Runtime const& runtime, desc const& from, void* source, desc const& to, void* target) {
  auto const made = dnnl::reorder::primitive_desc{runtime.engine, from, runtime.engine, to};
  return {runtime, dnnl::reorder{made}, {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, target}}};
}

}  // namespace chorale::onednn
