// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/pjrt/device/api_programs.hpp>
#include <chorale/pjrt/device/client.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

// A plug-in of PJRT in this program, for tests: no compiler, and no foreign code. A program's results are its arguments
// of the same number, copied on the same device, or zeros where it has none of that shape. It checks what real plug-ins
// check, and counts what it has given out. It is one table of short functions, which belong together.

namespace chorale::pjrt::api {

struct Error {
  int code;
  std::string said;
};
struct DeviceDescription {
  int id;
  std::string text;
};
struct Device {
  DeviceDescription description;
};
struct Event {
  bool ready                      = true;
  void (*callback)(Error*, void*) = nullptr;
  void* user                      = nullptr;
  std::string fails{};  // with this
};
struct Client {
  std::vector<Device> devices{};
  std::vector<Device*> list{};
};
struct Buffer {
  std::vector<std::int64_t> dims{};
  int type       = 0;
  Device* device = nullptr;
  std::vector<std::byte> bytes{};
  bool deleted = false;
};
struct Executable {
  Signature signature{};
  std::vector<int> types{};
  std::vector<std::int64_t> dims{};
  std::vector<std::size_t> dim_sizes{};
  std::size_t replicas = 0;
};
struct LoadedExecutable {
  Executable program{};
  std::vector<Device*> devices{};
  std::string text{};
  std::shared_ptr<void> parsed{};  // of a plug-in that computes
};
struct Topology {
  std::vector<DeviceDescription> devices{};
  std::vector<DeviceDescription*> list{};
};

}  // namespace chorale::pjrt::api

namespace chorale::test::fake {

namespace api = chorale::pjrt::api;

/// What the fake plug-in has seen and given out, for tests to read; and what it shall do.
struct World {
  std::map<std::string, pjrt::OptionValue> options{};  // of the last client
  std::vector<std::string> from_store{};               // what the key-value store answered
  std::string options_proto{};                         // of the last compilation
  int errors = 0, events = 0, buffers = 0, executables = 0, clients = 0, topologies = 0;  // that are not freed
  std::string client_fails{};                                                             // with this text, code 5
  bool refuses_count = false;       // the option cpu_device_count, as plug-ins for TPUs do
  bool holds_events  = false;       // events of runs stay open until release()
  std::vector<api::Event*> held{};  // with the mutex, when threads run programs
  std::size_t most_held = 0;
  int* allocations      = nullptr;  // a counter that shall not see what runs allocate in here
  std::mutex mutex{};
};
inline World& world() {
  static auto w = World{};
  return w;
}

inline api::Error* fail(int code, std::string said) {
  ++world().errors;
  return new api::Error{code, std::move(said)};
}
inline api::Event* new_event() {
  auto const lock = std::lock_guard{world().mutex};
  ++world().events;
  return new api::Event;
}

/// Ends the runs whose events are held, on a thread of the plug-in. fails: the text of an error of the first one
inline std::thread release(std::string fails = {}) {
  auto const all = std::lock_guard{world().mutex};
  auto held      = std::exchange(world().held, {});
  return std::thread{[held, fails] {
    for (std::size_t i = 0; i < held.size(); ++i) {
      auto* const error           = i == 0 && !fails.empty() ? fail(13, fails) : nullptr;
      auto lock                   = std::unique_lock{world().mutex};
      held[i]->ready              = true;
      auto const [callback, user] = std::pair{held[i]->callback, held[i]->user};
      lock.unlock();
      if (callback != nullptr) callback(error, user);  // it destroys the event
    }
  }};
}

/// The numbers that a compilation's options have: replicas and device ids. Empty where a plug-in would abort.
struct ReadOptions {
  std::uint64_t replicas = 0, partitions = 0;
  std::vector<int> devices{};
};
inline ReadOptions read_options(std::string_view bytes) {
  auto out          = ReadOptions{};
  auto const varint = [](std::string_view& in) {
    auto value = std::uint64_t{0};
    for (int shift = 0; !in.empty(); shift += 7) {
      auto const byte = static_cast<unsigned char>(in.front());
      in.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  auto const each = [&](std::string_view in, auto const& visit) {
    while (!in.empty()) {
      auto const key   = varint(in);
      auto const value = varint(in);
      auto const text  = (key & 7) == 2 ? in.substr(0, value) : std::string_view{};
      if ((key & 7) == 2) in.remove_prefix(value);
      visit(key >> 3, value, text);
    }
  };
  each(bytes, [&](auto field, auto, std::string_view build) {
    if (field != 3) return;
    each(build, [&](auto f, auto value, std::string_view assignment) {
      if (f == 4) out.replicas = value;
      if (f == 5) out.partitions = value;
      if (f != 9) return;
      each(assignment, [&](auto g, auto, std::string_view computation) {
        if (g != 3) return;
        each(computation, [&](auto, auto, std::string_view ids) {
          while (!ids.empty()) out.devices.push_back(static_cast<int>(varint(ids)));
        });
      });
    });
  });
  return out;
}

inline api::Error* compile(api::Program const& given, std::string_view options, api::Executable& to) {
  auto const text = std::string{given.code, given.code_size};
  if (std::string_view{given.format, given.format_size} != "mlir") return fail(3, "Unknown program format.");
  world().options_proto = options;
  auto const read       = read_options(options);
  if (read.replicas == 0 || read.partitions == 0) std::abort();  // as real ones do
  if (auto const at = text.find("!fault "); at != text.npos)
    return fail(2, text.substr(at + 7, text.find('\n', at) - at - 7) + "\n<unknown>:0: error: Failed to parse.");
  to.replicas  = read.replicas;
  to.signature = pjrt::signature_of(text);
  if (text.find("// other results") != text.npos) to.signature.results.push_back({});
  for (auto const& shape : to.signature.results) {
    to.types.push_back(static_cast<int>(shape.type));
    to.dims.insert(to.dims.end(), shape.dims.begin(), shape.dims.end());
    to.dim_sizes.push_back(shape.dims.size());
  }
  return nullptr;
}

inline api::Buffer* new_buffer(pjrt::Shape const& shape, api::Device* device) {
  ++world().buffers;
  return new api::Buffer{{shape.dims.begin(), shape.dims.end()},
                         static_cast<int>(shape.type),
                         device,
                         std::vector<std::byte>(shape.bytes())};
}

/// Takes back what a counter has counted since.
class NotCounted {
 public:
  NotCounted() : before_{world().allocations != nullptr ? *world().allocations : 0} {}
  ~NotCounted() {
    if (world().allocations != nullptr) *world().allocations = before_;
  }
  NotCounted(NotCounted const&) = delete;

 private:
  int before_;
};

/// Runs a program, whose results are zeros at first.
///
/// compute   compute(call) fills call.results[device][result]
template <class Compute> api::Error* execute(api::Execute* call, Compute&& compute) {
  auto const mine       = NotCounted{};
  auto& loaded          = *call->executable;
  auto const& signature = loaded.program.signature;
  if (loaded.text.find("!refuse") != loaded.text.npos) return fail(8, "Out of memory allocating 64 bytes.");
  if (call->num_devices != loaded.devices.size()) return fail(3, "another number of devices");
  for (std::size_t d = 0; d < call->num_devices; ++d)
    for (std::size_t a = 0; a < call->num_arguments; ++a)
      if (call->arguments[d][a]->deleted) return fail(3, "Buffer has been deleted or donated.");
  for (std::size_t d = 0; d < call->num_devices; ++d)
    for (std::size_t r = 0; r < signature.results.size(); ++r)
      call->results[d][r] = new_buffer(signature.results[r], loaded.devices[d]);
  compute(*call);
  for (std::size_t d = 0; d < call->num_devices; ++d) {
    for (auto const a : signature.donated) call->arguments[d][a]->deleted = true;
    if (call->complete == nullptr) continue;
    call->complete[d] = new_event();
    if (!world().holds_events) continue;
    call->complete[d]->ready = false;
    auto const lock          = std::lock_guard{world().mutex};
    world().held.push_back(call->complete[d]);
    world().most_held = std::max(world().most_held, world().held.size());
  }
  return nullptr;
}

/// Results that are the arguments of the same number, where those are of their size.
inline void copy_arguments(api::Execute& call) {
  for (std::size_t d = 0; d < call.num_devices; ++d)
    for (std::size_t r = 0; r < call.executable->program.types.size() && r < call.num_arguments; ++r)
      if (auto const& from = call.arguments[d][r]->bytes; from.size() == call.results[d][r]->bytes.size())
        call.results[d][r]->bytes = from;
}

inline api::Error* create_client(api::ClientCreate* call) {
  auto& w = world();
  w.options.clear();
  w.from_store.clear();
  if (!w.client_fails.empty()) return fail(5, w.client_fails);
  for (std::size_t i = 0; i < call->num_options; ++i) {
    auto const& o   = call->options[i];
    auto const name = std::string{o.name, o.name_size};
    if (o.type == api::NamedValue::integer) w.options[name] = o.value.integer;
    if (o.type == api::NamedValue::text) w.options[name] = std::string{o.value.text, o.value_size};
    if (o.type == api::NamedValue::real) w.options[name] = o.value.real;
    if (o.type == api::NamedValue::boolean) w.options[name] = o.value.boolean;
    if (o.type == api::NamedValue::integers)
      w.options[name] = std::vector<std::int64_t>(o.value.integers, o.value.integers + o.value_size);
  }
  if (w.refuses_count && w.options.contains("cpu_device_count"))
    return fail(3, "Unexpected option name passed to PJRT_Client_Create: cpu_device_count");
  auto const count = w.options.contains("cpu_device_count") ? std::get<std::int64_t>(w.options["cpu_device_count"]) : 4;
  if (call->put != nullptr) {  // as clients of several hosts do
    static auto make = api::MakeError{
        [](int code, char const* text, std::size_t size) { return fail(code, std::string{text, size}); }};
    auto const key   = std::string{"topology/0"};
    auto const value = std::string{"4 \0 devices", 11};
    auto put         = api::KeyValuePut{.key        = key.data(),
                                        .key_size   = key.size(),
                                        .value      = value.data(),
                                        .value_size = value.size(),
                                        .make_error = &make,
                                        .user       = call->put_user};
    if (auto* const error = call->put(&put)) return error;
    auto get = api::KeyValueGet{
        .key = key.data(), .key_size = key.size(), .timeout_in_ms = 250, .make_error = &make, .user = call->get_user};
    if (auto* const error = call->get(&get)) return error;
    w.from_store.emplace_back(get.value, get.value_size);
    get.deleter(get.value);
    auto none = api::KeyValueTryGet{.key = "absent", .key_size = 6, .make_error = &make, .user = call->try_get_user};
    if (auto* const error = call->try_get(&none)) {
      w.from_store.push_back(std::to_string(error->code) + " " + error->said);
      delete error;
      --w.errors;
    }
  }
  ++w.clients;
  auto* const client = new api::Client;
  for (int i = 0; i < count; ++i) client->devices.push_back({{i, "fake:" + std::to_string(i)}});
  for (auto& device : client->devices) client->list.push_back(&device);
  call->client = client;
  return nullptr;
}

template <class Handle> api::Error* give(std::string_view text, Handle* call) {
  call->text = text.data();
  call->size = text.size();
  return nullptr;
}

/// A function table as a plug-in has it; tests change their copies.
struct Table {
  api::Table head{};
  std::array<void*, 128> functions{};

  template <class Record, class Function> void set(Function function) {
    functions[Record::call.slot] = reinterpret_cast<void*>(static_cast<api::Error* (*)(Record*)>(function));
  }
  template <class Record> void clear() { functions[Record::call.slot] = nullptr; }

  explicit Table(int minor = 106) {
    head.struct_size                        = sizeof(Table);
    head.minor                              = minor;
    functions[api::ErrorMessage::call.slot] = reinterpret_cast<void*>(+[](api::ErrorMessage* call) {
      call->text = call->handle->said.data();
      call->size = call->handle->said.size();
    });
    functions[api::ErrorDestroy::call.slot] = reinterpret_cast<void*>(+[](api::ErrorDestroy* call) {
      delete call->handle;
      --world().errors;
    });
    set<api::ErrorCode>([](auto* call) { return call->value = call->handle->code, (api::Error*)nullptr; });
    set<api::PluginInitialize>([](auto*) -> api::Error* { return nullptr; });
    set<api::PluginAttributes>([](auto* call) -> api::Error* {
      static constexpr std::int64_t version[] = {1, 16, 1};
      static auto const values                = std::array{api::NamedValue{.name       = "stablehlo_current_version",
                                                                           .name_size  = 25,
                                                                           .type       = api::NamedValue::integers,
                                                                           .value      = {.integers = version},
                                                                           .value_size = 3},
                                            api::NamedValue{.name       = "made_by",
                                                                           .name_size  = 7,
                                                                           .type       = api::NamedValue::text,
                                                                           .value      = {.text = "a test"},
                                                                           .value_size = 6}};
      call->attributes                        = values.data();
      call->size                              = values.size();
      return nullptr;
    });
    set<api::EventDestroy>([](auto* call) -> api::Error* {
      auto const lock = std::lock_guard{world().mutex};
      delete call->handle;
      --world().events;
      return nullptr;
    });
    set<api::EventIsReady>([](auto* call) -> api::Error* { return call->value = call->handle->ready, nullptr; });
    set<api::EventAwait>([](auto*) -> api::Error* { return nullptr; });
    set<api::EventOnReady>([](auto* call) -> api::Error* {
      auto lock             = std::unique_lock{world().mutex};
      call->event->callback = call->callback;
      call->event->user     = call->user;
      auto const ready      = call->event->ready;
      lock.unlock();
      if (ready) call->callback(nullptr, call->user);
      return nullptr;
    });
    set<api::ClientCreate>(&create_client);
    set<api::ClientDestroy>([](auto* call) -> api::Error* { return delete call->handle, --world().clients, nullptr; });
    set<api::PlatformName>([](auto* call) { return give("fake", call); });
    set<api::PlatformVersion>([](auto* call) { return give("1", call); });
    set<api::ProcessIndex>([](auto* call) -> api::Error* { return call->value = 0, nullptr; });
    auto const devices = [](auto* call) -> api::Error* {
      call->values = call->handle->list.data();
      call->size   = call->handle->list.size();
      return nullptr;
    };
    set<api::ClientDevices>(devices);
    set<api::OwnDevices>(devices);
    set<api::TopologyDevices>(devices);
    set<api::DescriptionOf>([](auto* c) -> api::Error* { return c->value = &c->handle->description, nullptr; });
    set<api::DeviceId>([](auto* call) -> api::Error* { return call->value = call->handle->id, nullptr; });
    set<api::DeviceProcess>([](auto* call) -> api::Error* { return call->value = 0, nullptr; });
    set<api::DeviceKind>([](auto* call) { return give("fake", call); });
    set<api::DeviceText>([](auto* call) { return give(call->handle->text, call); });
    set<api::ClientCompile>([](auto* call) -> api::Error* {
      auto program = api::Executable{};
      if (auto* const error = compile(*call->program, {call->options, call->options_size}, program)) return error;
      ++world().executables;
      call->executable = new api::LoadedExecutable{program, {}, {call->program->code, call->program->code_size}};
      for (int const id : read_options({call->options, call->options_size}).devices)
        call->executable->devices.push_back(call->client->list[static_cast<std::size_t>(id)]);
      return nullptr;
    });
    set<api::LoadedDestroy>(
        [](auto* call) -> api::Error* { return delete call->handle, --world().executables, nullptr; });
    set<api::LoadedProgram>([](auto* call) -> api::Error* {
      ++world().executables;
      return call->value = new api::Executable{call->handle->program}, nullptr;
    });
    set<api::LoadedDevices>([](auto* call) -> api::Error* {
      call->values = call->handle->devices.data();
      call->size   = call->handle->devices.size();
      return nullptr;
    });
    set<api::ProgramDestroy>(
        [](auto* call) -> api::Error* { return delete call->handle, --world().executables, nullptr; });
    set<api::ProgramReplicas>([](auto* call) -> api::Error* { return call->value = call->handle->replicas, nullptr; });
    set<api::OutputTypes>([](auto* call) -> api::Error* {
      call->values = call->handle->types.data();
      call->size   = call->handle->types.size();
      return nullptr;
    });
    set<api::OutputDims>([](auto* call) -> api::Error* {
      call->num_outputs = call->executable->dim_sizes.size();
      call->dims        = call->executable->dims.data();
      call->dim_sizes   = call->executable->dim_sizes.data();
      return nullptr;
    });
    set<api::Execute>([](auto* call) { return execute(call, copy_arguments); });
    set<api::BufferFromHost>([](auto* call) -> api::Error* {
      auto const shape =
          pjrt::Shape{static_cast<pjrt::ElementType>(call->type), pjrt::Dims{std::span{call->dims, call->num_dims}}};
      call->buffer = new_buffer(shape, call->device);
      if (shape.bytes() > 0) std::memcpy(call->buffer->bytes.data(), call->data, shape.bytes());
      call->done_with_host_buffer = new_event();
      return nullptr;
    });
    set<api::BufferToHost>([](auto* call) -> api::Error* {
      if (call->source->deleted) return fail(3, "Buffer has been deleted or donated.");
      for (std::size_t i = 0; i < call->source->dims.size(); ++i)  // it is asked for rows, the last dim fastest
        if (call->host_layout->tiled.minor_to_major[i] != static_cast<std::int64_t>(call->source->dims.size() - 1 - i))
          return fail(12, "another layout");
      if (call->bytes != 0) std::memcpy(call->to, call->source->bytes.data(), call->bytes);
      call->event = new_event();
      return nullptr;
    });
    set<api::BufferDestroy>([](auto* call) -> api::Error* { return delete call->handle, --world().buffers, nullptr; });
    set<api::BufferIsDeleted>([](auto* call) -> api::Error* { return call->value = call->handle->deleted, nullptr; });
    set<api::BufferReady>([](auto* call) -> api::Error* { return call->value = new_event(), nullptr; });
    set<api::TopologyCreate>([](auto* call) -> api::Error* {
      auto const name = std::string{call->name, call->name_size};
      if (name != "fake:2x2") return fail(3, "Your topology name " + name + " is invalid.");
      ++world().topologies;
      call->topology = new api::Topology{{{0, "a"}, {1, "b"}, {2, "c"}, {3, "d"}}, {}};
      for (auto& device : call->topology->devices) call->topology->list.push_back(&device);
      return nullptr;
    });
    set<api::TopologyDestroy>([](auto* c) -> api::Error* { return delete c->handle, --world().topologies, nullptr; });
    set<api::TopologyName>([](auto* call) { return give("fake", call); });
    set<api::TopologyVersion>([](auto* call) { return give("1", call); });
    set<api::Compile>([](auto* call) -> api::Error* {
      auto program = api::Executable{};
      if (auto* const error = compile(*call->program, {call->options, call->options_size}, program)) return error;
      ++world().executables;
      call->executable = new api::Executable{program};
      return nullptr;
    });
  }
};

/// The fake plug-in of this program.
inline pjrt::Plugin plugin() {
  static auto const table = Table{};
  return pjrt::Plugin::linked(&table.head, "the fake plug-in");
}

}  // namespace chorale::test::fake
