// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/pjrt/device/api.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace chorale::pjrt {

/// Texts by key that all processes of a job see: through them the clients of several hosts find one another.
///
/// put       puts a value; a key is put once
/// get       waits until the key has a value; nothing when none came in time
/// try_get   the value, or nothing, at once
/// order     a plug-in calls these on any of its threads, also after Client's constructor has returned
struct KeyValueStore {
  std::function<void(std::string_view key, std::string_view value)> put{};
  std::function<std::optional<std::string>(std::string_view key, std::chrono::milliseconds timeout)> get{};
  std::function<std::optional<std::string>(std::string_view key)> try_get{};

  explicit operator bool() const { return put && get && try_get; }
};

namespace detail {

inline api::Error* error_of(api::MakeError* make, int code, std::string_view text) {
  return (*make)(code, text.data(), text.size());
}

/// Answers a plug-in's question for a key with what a function of the store returns; no exception leaves it.
template <class Record, class Get> api::Error* answer(Record* question, Get const& get) noexcept {
  constexpr int not_found = 5, internal = 13;
  try {
    auto const key   = std::string_view{question->key, question->key_size};
    auto const value = get(key);
    if (!value) return error_of(question->make_error, not_found, "no value for " + std::string{key});
    question->value      = new char[value->size() + 1]{};
    question->value_size = value->size();
    question->deleter    = [](char* text) { delete[] text; };
    std::copy(value->begin(), value->end(), question->value);
    return nullptr;
  } catch (std::exception const& error) { return error_of(question->make_error, internal, error.what()); } catch (...) {
    return error_of(question->make_error, internal, "the key-value store failed");
  }
}

/// Tells a record for Client's creation which store to call. The store has to stay where it is.
inline void connect(api::ClientCreate& create, KeyValueStore& store) {
  create.get_user = create.put_user = create.try_get_user = &store;
  create.get                                              = [](api::KeyValueGet* asked) {
    return answer(asked, [&](std::string_view key) {
      return static_cast<KeyValueStore*>(asked->user)->get(key, std::chrono::milliseconds{asked->timeout_in_ms});
    });
  };
  create.try_get = [](api::KeyValueTryGet* asked) {
    return answer(asked, [&](std::string_view key) { return static_cast<KeyValueStore*>(asked->user)->try_get(key); });
  };
  create.put = [](api::KeyValuePut* given) -> api::Error* {
    constexpr int internal = 13;
    try {
      static_cast<KeyValueStore*>(given->user)->put({given->key, given->key_size}, {given->value, given->value_size});
      return nullptr;
    } catch (std::exception const& error) { return error_of(given->make_error, internal, error.what()); } catch (...) {
      return error_of(given->make_error, internal, "the key-value store failed");
    }
  };
}

}  // namespace detail

}  // namespace chorale::pjrt
