// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// The part of PJRT's C interface that this library calls, declared here: argument records, and where each function
/// lies in the table that a plug-in returns. Sizes are from the newest minor version that was read, 0.114, as a
/// plug-in accepts a record that is longer than its own, and refuses a shorter one.
///
/// source  openxla.org, "PJRT C API": each call takes one record that starts with its own size, and returns an error or
///         null
namespace chorale::pjrt::api {

struct Error;  // handles of a plug-in: never defined
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Topology;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;

/// Name of a call, as a template argument.
struct Name {
  char text[64] = {};
  template <std::size_t n> consteval Name(char const (&literal)[n]) {  // implicit, from a literal
    static_assert(n <= sizeof text);
    std::copy_n(literal, n, text);
  }
  constexpr operator std::string_view() const { return text; }
};

/// Where a call lies in the function table, how long its record is, and what it is called.
struct Call {
  std::size_t slot;   // 0-based
  std::size_t bytes;  // of the record, without padding after its last member
  std::string_view name;
};

// Records of the same form: a handle, and what the call is told or answers about it. In each: the record's own size,
// then a chain of extensions, which this library does not use.

/// A call about one handle.
template <std::size_t place, Name name, class Handle> struct About {
  static constexpr Call call{place, 24, name};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
  Handle* handle          = nullptr;
};

/// A call that answers a text, which the plug-in owns.
template <std::size_t place, Name name, class Handle> struct TextOf {
  static constexpr Call call{place, 40, name};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
  Handle* handle          = nullptr;
  char const* text        = nullptr;
  std::size_t size        = 0;
};

/// A call that answers one value.
template <std::size_t place, Name name, class Handle, class Value> struct ValueOf {
  static constexpr Call call{place, 24 + sizeof(Value), name};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
  Handle* handle          = nullptr;
  Value value{};
};

/// A call that answers an array, which the plug-in owns.
template <std::size_t place, Name name, class Handle, class Value> struct ListOf {
  static constexpr Call call{place, 40, name};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
  Handle* handle          = nullptr;
  Value const* values     = nullptr;
  std::size_t size        = 0;
};

using ErrorDestroy    = About<0, "PJRT_Error_Destroy", Error>;         // returns nothing
using ErrorMessage    = TextOf<1, "PJRT_Error_Message", Error const>;  // returns nothing
using ErrorCode       = ValueOf<2, "PJRT_Error_GetCode", Error const, int>;
using EventDestroy    = About<5, "PJRT_Event_Destroy", Event>;
using EventIsReady    = ValueOf<6, "PJRT_Event_IsReady", Event, bool>;
using EventAwait      = About<8, "PJRT_Event_Await", Event>;
using ClientDestroy   = About<11, "PJRT_Client_Destroy", Client>;
using PlatformName    = TextOf<12, "PJRT_Client_PlatformName", Client>;
using ProcessIndex    = ValueOf<13, "PJRT_Client_ProcessIndex", Client, int>;
using PlatformVersion = TextOf<14, "PJRT_Client_PlatformVersion", Client>;
using ClientDevices   = ListOf<15, "PJRT_Client_Devices", Client, Device*>;
using OwnDevices      = ListOf<16, "PJRT_Client_AddressableDevices", Client, Device*>;
using DeviceId        = ValueOf<23, "PJRT_DeviceDescription_Id", DeviceDescription, int>;
using DeviceProcess   = ValueOf<24, "PJRT_DeviceDescription_ProcessIndex", DeviceDescription, int>;
using DeviceKind      = TextOf<26, "PJRT_DeviceDescription_Kind", DeviceDescription>;
using DeviceText      = TextOf<27, "PJRT_DeviceDescription_DebugString", DeviceDescription>;
using DescriptionOf   = ValueOf<29, "PJRT_Device_GetDescription", Device, DeviceDescription*>;
using ProgramDestroy  = About<40, "PJRT_Executable_Destroy", Executable>;
using ProgramReplicas = ValueOf<42, "PJRT_Executable_NumReplicas", Executable, std::size_t>;
using ProgramOutputs  = ValueOf<44, "PJRT_Executable_NumOutputs", Executable, std::size_t>;
using ProgramCodeSize = ValueOf<45, "PJRT_Executable_SizeOfGeneratedCodeInBytes", Executable, std::int64_t>;
using LoadedDestroy   = About<50, "PJRT_LoadedExecutable_Destroy", LoadedExecutable>;
using LoadedProgram   = ValueOf<51, "PJRT_LoadedExecutable_GetExecutable", LoadedExecutable, Executable*>;
using LoadedDevices   = ListOf<52, "PJRT_LoadedExecutable_AddressableDevices", LoadedExecutable, Device*>;
using BufferDestroy   = About<58, "PJRT_Buffer_Destroy", Buffer>;
using BufferIsDeleted = ValueOf<68, "PJRT_Buffer_IsDeleted", Buffer, bool>;
using BufferReady     = ValueOf<72, "PJRT_Buffer_ReadyEvent", Buffer, Event*>;
using BufferAddress   = ValueOf<73, "PJRT_Buffer_UnsafePointer", Buffer, std::uintptr_t>;
using TopologyDestroy = About<83, "PJRT_TopologyDescription_Destroy", Topology>;
using TopologyName    = TextOf<84, "PJRT_TopologyDescription_PlatformName", Topology const>;
using TopologyVersion = TextOf<85, "PJRT_TopologyDescription_PlatformVersion", Topology>;
using TopologyDevices =
    ListOf<86, "PJRT_TopologyDescription_GetDeviceDescriptions", Topology const, DeviceDescription*>;
using OutputTypes = ListOf<90, "PJRT_Executable_OutputElementTypes", Executable, int>;

/// PJRT_NamedValue: an option or an attribute, of one of five types.
struct NamedValue {
  enum Type : int { text, integer, integers, real, boolean };
  union Value {
    char const* text;
    std::int64_t integer;
    std::int64_t const* integers;
    float real;
    bool boolean;
  };
  static constexpr std::size_t bytes = 56;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  char const* name                   = nullptr;
  std::size_t name_size              = 0;
  Type type                          = text;
  Value value{nullptr};
  std::size_t value_size = 0;  // of a text or an array, else 1
};
static_assert(offsetof(NamedValue, value_size) + 8 == NamedValue::bytes);

/// PJRT_Plugin_Initialize.
struct PluginInitialize {
  static constexpr Call call{3, 16, "PJRT_Plugin_Initialize"};
  std::size_t struct_size = call.bytes;
  void* extension         = nullptr;
};

/// PJRT_Plugin_Attributes.
struct PluginAttributes {
  static constexpr Call call{4, 32, "PJRT_Plugin_Attributes"};
  std::size_t struct_size      = call.bytes;
  void* extension              = nullptr;
  NamedValue const* attributes = nullptr;
  std::size_t size             = 0;
};
static_assert(offsetof(PluginAttributes, size) + 8 == PluginAttributes::call.bytes);

/// PJRT_Event_OnReady: calls a function, on a thread of the plug-in or on this one. The error belongs to the function.
struct EventOnReady {
  static constexpr Call call{9, 40, "PJRT_Event_OnReady"};
  std::size_t struct_size              = call.bytes;
  void* extension                      = nullptr;
  Event* event                         = nullptr;
  void (*callback)(Error*, void* user) = nullptr;
  void* user                           = nullptr;
};
static_assert(offsetof(EventOnReady, user) + 8 == EventOnReady::call.bytes);

/// Makes an error of a plug-in, for a callback that fails.
using MakeError = Error* (*)(int code, char const* message, std::size_t message_size);

/// What PJRT passes to get a value of the store that the processes of a job share, when it waits for it to be put.
struct KeyValueGet {
  static constexpr std::size_t bytes = 80;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  char const* key                    = nullptr;
  std::size_t key_size               = 0;
  int timeout_in_ms                  = 0;
  MakeError* make_error              = nullptr;
  void* user                         = nullptr;
  char* value                        = nullptr;  // out; freed by deleter(value)
  std::size_t value_size             = 0;
  void (*deleter)(char* value)       = nullptr;
};
static_assert(offsetof(KeyValueGet, deleter) + 8 == KeyValueGet::bytes);

/// What PJRT passes to get a value of the shared store without waiting.
struct KeyValueTryGet {
  static constexpr std::size_t bytes = 72;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  char const* key                    = nullptr;
  std::size_t key_size               = 0;
  MakeError* make_error              = nullptr;
  void* user                         = nullptr;
  char* value                        = nullptr;
  std::size_t value_size             = 0;
  void (*deleter)(char* value)       = nullptr;
};
static_assert(offsetof(KeyValueTryGet, deleter) + 8 == KeyValueTryGet::bytes);

/// What PJRT passes to put a value into the shared store.
struct KeyValuePut {
  static constexpr std::size_t bytes = 64;
  std::size_t struct_size            = bytes;
  void* extension                    = nullptr;
  char const* key                    = nullptr;
  std::size_t key_size               = 0;
  char const* value                  = nullptr;
  std::size_t value_size             = 0;
  MakeError* make_error              = nullptr;
  void* user                         = nullptr;
};
static_assert(offsetof(KeyValuePut, user) + 8 == KeyValuePut::bytes);

/// PJRT_Client_Create.
struct ClientCreate {
  static constexpr Call call{10, 88, "PJRT_Client_Create"};
  std::size_t struct_size            = call.bytes;
  void* extension                    = nullptr;
  NamedValue const* options          = nullptr;
  std::size_t num_options            = 0;
  Error* (*get)(KeyValueGet*)        = nullptr;
  void* get_user                     = nullptr;
  Error* (*put)(KeyValuePut*)        = nullptr;
  void* put_user                     = nullptr;
  Client* client                     = nullptr;  // out
  Error* (*try_get)(KeyValueTryGet*) = nullptr;
  void* try_get_user                 = nullptr;
};
static_assert(offsetof(ClientCreate, try_get_user) + 8 == ClientCreate::call.bytes);

/// Start of the function table that GetPjrtApi returns. Functions follow it, one pointer each; see Call::slot.
struct Table {
  std::size_t struct_size         = 0;  // of the whole table
  void* extension                 = nullptr;
  std::size_t version_struct_size = 24;
  void* version_extension         = nullptr;
  int major                       = 0;
  int minor                       = 0;
};
static_assert(sizeof(Table) == 40);

}  // namespace chorale::pjrt::api
