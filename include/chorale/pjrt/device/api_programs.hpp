// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/pjrt/device/api.hpp>

#include <cstddef>
#include <cstdint>

/// The records of PJRT's C interface about programs and buffers.
namespace chorale::pjrt::api {

/// PJRT_Program: the text of a module, and the name of its format.
struct Program {
  static constexpr std::size_t bytes = 48;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  char* code                         = nullptr;
  std::size_t code_size              = 0;
  char const* format                 = nullptr;
  std::size_t format_size            = 0;
};
static_assert(offsetof(Program, format_size) + 8 == Program::bytes);

/// PJRT_Client_Compile.
struct ClientCompile {
  static constexpr Call call{20, 56, "PJRT_Client_Compile"};
  std::size_t struct_size      = call.bytes;
  void* extension              = nullptr;
  Client* client               = nullptr;
  Program const* program       = nullptr;
  char const* options          = nullptr;  // a serialised CompileOptionsProto, never empty
  std::size_t options_size     = 0;
  LoadedExecutable* executable = nullptr;  // out
};
static_assert(offsetof(ClientCompile, executable) + 8 == ClientCompile::call.bytes);

/// PJRT_Buffer_MemoryLayout: the order of dimensions, the fastest first, without tiles. Strides are not used.
struct Layout {
  struct Tiled {
    std::size_t struct_size            = 56;
    void* extension                    = nullptr;
    std::int64_t const* minor_to_major = nullptr;
    std::size_t minor_to_major_size    = 0;
    std::int64_t const* tile_dims      = nullptr;
    std::size_t const* tile_dim_sizes  = nullptr;
    std::size_t num_tiles              = 0;
  };
  static constexpr std::size_t bytes = 76;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  Tiled tiled{};
  int type = 0;  // 0: tiled
};
static_assert(sizeof(Layout::Tiled) == 56 && offsetof(Layout, type) + 4 == Layout::bytes);

/// When the host's memory may change or be freed after it was handed to BufferFromHost.
enum class HostSemantics : int { only_during_call, until_transfer_completes, zero_copy, mutable_zero_copy };

/// PJRT_Client_BufferFromHostBuffer.
struct BufferFromHost {
  static constexpr Call call{22, 120, "PJRT_Client_BufferFromHostBuffer"};
  std::size_t struct_size          = call.bytes;
  void* extension                  = nullptr;
  Client* client                   = nullptr;
  void const* data                 = nullptr;
  int type                         = 0;
  std::int64_t const* dims         = nullptr;
  std::size_t num_dims             = 0;
  std::int64_t const* byte_strides = nullptr;  // null: row-major
  std::size_t num_byte_strides     = 0;
  HostSemantics semantics          = HostSemantics::only_during_call;
  Device* device                   = nullptr;
  Memory* memory                   = nullptr;  // null: the device's default
  Layout* device_layout            = nullptr;  // null: the device's default
  Event* done_with_host_buffer     = nullptr;  // out
  Buffer* buffer                   = nullptr;  // out
};
static_assert(offsetof(BufferFromHost, buffer) + 8 == BufferFromHost::call.bytes);

/// PJRT_Buffer_ToHostBuffer.
struct BufferToHost {
  static constexpr Call call{70, 56, "PJRT_Buffer_ToHostBuffer"};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
  Buffer* source          = nullptr;
  Layout* host_layout     = nullptr;  // null: the device's layout, which need not be row-major
  void* to                = nullptr;
  std::size_t bytes       = 0;
  Event* event            = nullptr;  // out: when the bytes are there
};
static_assert(offsetof(BufferToHost, event) + 8 == BufferToHost::call.bytes);

/// PJRT_Buffer_Dimensions.
using BufferDims = ListOf<60, "PJRT_Buffer_Dimensions", Buffer, std::int64_t>;

/// PJRT_ExecuteOptions: everything in it is left at zero.
struct ExecuteOptions {
  static constexpr std::size_t bytes = 144;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  void* send_callbacks               = nullptr;
  void* receive_callbacks            = nullptr;
  std::size_t num_send_ops           = 0;
  std::size_t num_receive_ops        = 0;
  int launch_id                      = 0;
  std::int64_t const* not_donatable  = nullptr;  // argument indices
  std::size_t num_not_donatable      = 0;
  void* context                      = nullptr;
  char const* call_location          = nullptr;
  std::size_t num_tasks              = 0;
  int* task_ids                      = nullptr;
  std::int64_t* incarnation_ids      = nullptr;
  void* multi_slice_config           = nullptr;  // from here on: newer than 0.90
  bool major_to_minor_callbacks      = false;
  void* output_callbacks             = nullptr;
  std::size_t num_output_callbacks   = 0;
};
static_assert(offsetof(ExecuteOptions, num_output_callbacks) + 8 == ExecuteOptions::bytes);

/// PJRT_LoadedExecutable_Execute: one call that starts all replicas of this process.
struct Execute {
  static constexpr Call call{55, 80, "PJRT_LoadedExecutable_Execute"};
  std::size_t struct_size         = call.bytes;
  void* extension                 = nullptr;
  LoadedExecutable* executable    = nullptr;
  ExecuteOptions* options         = nullptr;
  Buffer* const* const* arguments = nullptr;  // [device][argument]
  std::size_t num_devices         = 0;
  std::size_t num_arguments       = 0;
  Buffer** const* results         = nullptr;  // [device][result], written
  Event** complete                = nullptr;  // [device], written; null: none are wanted
  Device* device                  = nullptr;  // null: the devices of the compilation
};
static_assert(offsetof(Execute, device) + 8 == Execute::call.bytes);

/// PJRT_Executable_OptimizedProgram.
struct OptimizedProgram {
  static constexpr Call call{48, 32, "PJRT_Executable_OptimizedProgram"};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
  Executable* executable  = nullptr;
  Program* program        = nullptr;  // code null: asks for its size
};
static_assert(offsetof(OptimizedProgram, program) + 8 == OptimizedProgram::call.bytes);

/// PJRT_Executable_OutputDimensions.
struct OutputDims {
  static constexpr Call call{91, 48, "PJRT_Executable_OutputDimensions"};
  std::size_t struct_size      = call.bytes;
  void* extension              = nullptr;
  Executable* executable       = nullptr;
  std::size_t num_outputs      = 0;
  std::int64_t const* dims     = nullptr;  // of all outputs, one after another
  std::size_t const* dim_sizes = nullptr;  // number of dimensions of each output
};
static_assert(offsetof(OutputDims, dim_sizes) + 8 == OutputDims::call.bytes);

/// PJRT_Executable_GetCompiledMemoryStats: bytes on each device, and on its host.
struct MemoryStats {
  static constexpr Call call{96, 144, "PJRT_Executable_GetCompiledMemoryStats"};
  std::size_t struct_size             = call.bytes;
  void* extension                     = nullptr;
  Executable* executable              = nullptr;
  std::int64_t code                   = 0;
  std::int64_t arguments              = 0;
  std::int64_t outputs                = 0;
  std::int64_t aliased                = 0;
  std::int64_t temporary              = 0;
  std::int64_t host_code              = 0;
  std::int64_t host_arguments         = 0;
  std::int64_t host_outputs           = 0;
  std::int64_t host_aliased           = 0;
  std::int64_t host_temporary         = 0;
  std::int64_t peak                   = 0;
  std::int64_t total                  = 0;
  std::int64_t total_allocation       = 0;  // from here on: newer than 0.90
  std::int64_t indefinite_allocations = 0;
  std::int64_t peak_unpadded_heap     = 0;
};
static_assert(offsetof(MemoryStats, peak_unpadded_heap) + 8 == MemoryStats::call.bytes);

/// PJRT_TopologyDescription_Create: devices by name, which need not be present.
struct TopologyCreate {
  static constexpr Call call{82, 56, "PJRT_TopologyDescription_Create"};
  std::size_t struct_size   = call.bytes;
  void* extension           = nullptr;
  char const* name          = nullptr;
  std::size_t name_size     = 0;
  NamedValue const* options = nullptr;
  std::size_t num_options   = 0;
  Topology* topology        = nullptr;  // out
};
static_assert(offsetof(TopologyCreate, topology) + 8 == TopologyCreate::call.bytes);

/// PJRT_Compile: for devices that need not be there.
struct Compile {
  static constexpr Call call{89, 64, "PJRT_Compile"};
  std::size_t struct_size  = call.bytes;
  void* extension          = nullptr;
  Topology const* topology = nullptr;
  Program const* program   = nullptr;
  char const* options      = nullptr;
  std::size_t options_size = 0;
  Client* client           = nullptr;  // null: none
  Executable* executable   = nullptr;  // out
};
static_assert(offsetof(Compile, executable) + 8 == Compile::call.bytes);

}  // namespace chorale::pjrt::api
