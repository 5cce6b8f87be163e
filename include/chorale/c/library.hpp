// SPDX-License-Identifier: Apache-2.0
//
// The functions of chorale.h, for one source file of a shared library: it names models, and has them from then on.
#pragma once

#include <chorale/c/chorale.h>

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/online.hpp>
#include <chorale/transport/local.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::c {

/// A trainer as the functions of chorale.h know it, whatever its model.
struct AnyTrainer {
  struct Widths {
    std::size_t inputs = 0, targets = 0, outputs = 0;
  };

  virtual ~AnyTrainer()                                   = default;
  virtual Widths widths() const                           = 0;
  virtual std::uint64_t steps() const                     = 0;
  virtual void train(chorale_rows x, chorale_rows y)      = 0;
  virtual void evaluate(chorale_rows x, chorale_rows y)   = 0;
  virtual void predict(chorale_rows x, chorale_results y) = 0;
  virtual void save(char const* file)                     = 0;
  virtual void load(char const* file)                     = 0;
  virtual void set_learning_rate(double rate)             = 0;

  Scores scores{};  // of the last train() or evaluate()
};

/// The trainers of this process. A chorale_trainer* is a number that no other trainer of the process has, and not an
/// address: programs in Fortran copy it by an assignment, and use a copy after the trainer has ended.
class Trainers {
 public:
  static chorale_trainer* add(std::shared_ptr<AnyTrainer> trainer) {
    auto const lock  = std::lock_guard{mutex()};
    static auto last = std::uintptr_t{0};
    all().emplace(++last, std::move(trainer));
    return reinterpret_cast<chorale_trainer*>(last);
  }

  /// throws  BadArgument for NULL, and for a trainer that has ended
  static std::shared_ptr<AnyTrainer> at(chorale_trainer const* handle) { return found(handle, false); }
  static std::shared_ptr<AnyTrainer> take(chorale_trainer const* handle) { return found(handle, true); }

 private:
  static std::shared_ptr<AnyTrainer> found(chorale_trainer const* handle, bool ends);

  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<std::uintptr_t, std::shared_ptr<AnyTrainer>>& all() {
    static auto& one = *new std::map<std::uintptr_t, std::shared_ptr<AnyTrainer>>;  // exit() ends none: MPI has ended
    return one;
  }
};

/// What a program asks chorale_create for.
struct Job {
  char const* model = nullptr;        // its name; null or empty: the first one
  int communicator  = CHORALE_ALONE;  // MPI's, as Fortran has it
  Seed seed{};
};

/// A model of a library: its name, and a function of a Job that makes the Trainer.
template <class Make> struct Model {
  std::string_view name;
  Make make;
};
template <class Make> Model(char const*, Make) -> Model<Make>;

/// The sentence of the last failure in this thread, cut to fit.
inline thread_local std::array<char, 2'048> message{};

inline void keep_message(std::string_view text) noexcept {
  auto const n = std::min(text.size(), message.size() - 1);
  std::memcpy(message.data(), text.data(), n);
  message[n] = '\0';
}

/// Calls f. Returns 0, or the code of what it throws, whose sentence is kept.
template <class F> int guarded(F&& f) noexcept {
  try {
    f();
    return CHORALE_OK;
  } catch (std::exception const& error) {
    keep_message(error.what());
    return exit_code(error);
  } catch (...) {
    keep_message("chorale: the model has thrown what is no std::exception.");
    return CHORALE_FAILED;
  }
}

/// Refuses a null pointer in place of an argument.
template <class T> T& given(T* pointer, char const* what) {
  if (pointer == nullptr)
    throw BadArgument{std::string{"the argument "} + what + " is NULL.", "what chorale.h says of it."};
  return *pointer;
}

inline std::shared_ptr<AnyTrainer> Trainers::found(chorale_trainer const* handle, bool ends) {
  given(handle, "trainer");
  auto const lock = std::lock_guard{mutex()};
  auto const at   = all().find(reinterpret_cast<std::uintptr_t>(handle));
  if (at == all().end())
    throw BadArgument{"this trainer has ended: chorale_destroy was called with this handle, or with a copy of it.",
                      "one chorale_destroy for each chorale_create; b = a copies the handle, and not the trainer."};
  auto trainer = at->second;
  if (ends) all().erase(at);
  return trainer;
}

/// Refuses rows that are not `width` numbers each.
template <class Rows> void expect_rows(char const* name, Rows const& rows, std::size_t width) {
  if (rows.width != width)
    throw BadArgument{sentence("{} has rows of {} numbers, but the model has {} there.", name, rows.width, width),
                      "chorale_widths, which says how many numbers a row has; a Fortran array is (numbers, rows)."};
  if (rows.data == nullptr && rows.rows != 0)
    throw BadArgument{sentence("{} is NULL, but has {} rows.", name, rows.rows), "the address of its first number."};
  if (rows.rows > std::size_t{1} << 40)  // of a negative int: 2^64 less a few
    throw BadArgument{sentence("{} has {} rows, which no memory has.", name, rows.rows), "the number of its rows."};
  if (rows.type == CHORALE_SCATTERED)
    throw BadArgument{sentence("{} has {} rows that do not lie one after another: it is a section of a larger array.",
                               name, rows.rows),
                      "a whole array, or a copy of the section."};
}

[[noreturn]] inline void refuse_type(char const* name, int type, char const* wanted) {
  throw BadArgument{sentence("{} has numbers of type {}, but the model takes {} there.", name, type, wanted),
                    "CHORALE_F32 is 1, CHORALE_F64 2 and CHORALE_I32 3."};
}

/// The numbers of rows: where they lie if they are of type T, doubles rounded into `kept`.
template <class T> Span<T const> numbers_of(char const* name, chorale_rows const& rows, std::vector<T>& kept) {
  auto const n = rows.width * rows.rows;
  if constexpr (std::is_same_v<T, float>) {
    if (rows.type == CHORALE_F32) return {static_cast<float const*>(rows.data), n};
    if (rows.type != CHORALE_F64) refuse_type(name, rows.type, "floats or doubles");
    auto const* const from = static_cast<double const*>(rows.data);
    kept.resize(n);
    std::transform(from, from + n, kept.begin(), [](double number) { return static_cast<float>(number); });
    return kept;
  } else {
    if (rows.type != CHORALE_I32) refuse_type(name, rows.type, "labels, which are integers");
    return {static_cast<std::int32_t const*>(rows.data), n};
  }
}

/// True if a trainer's model is a network of rows with one input and one target.
template <class Made> inline constexpr bool trains_network = false;
template <class M, class S, class R, class T>
inline constexpr bool trains_network<Trainer<M, S, R, T>> = requires { M::input::size, M::output::size, &M::loss; };

/// Adapts the trainer that `Make` makes to the functions of chorale.h.
template <class Made> class TrainerOf;

/// Adapts a Trainer, with its online training, to the functions of chorale.h.
template <class M, class S, class R, class T> class TrainerOf<Trainer<M, S, R, T>> : public AnyTrainer {
 public:
  template <class Make> TrainerOf(Make const& make, Job const& job) : trainer_{make(job)} {}

  Widths widths() const override { return {inputs, targets, outputs}; }
  std::uint64_t steps() const override { return trainer_.step(); }
  void train(chorale_rows x, chorale_rows y) override {
    scores = online_.train_on([&] { return batch_of(x, y); });
  }
  void evaluate(chorale_rows x, chorale_rows y) override {
    scores = online_.evaluate_on([&] { return batch_of(x, y); });
  }
  void predict(chorale_rows x, chorale_results y) override {
    auto const rows = [&] {
      expect_rows("x", x, inputs);
      expect_rows("y", y, outputs);
      if (y.rows != x.rows)
        throw BadArgument{sentence("x has {} rows, but y has {}.", x.rows, y.rows), "as many rows in both."};
      if (y.type != CHORALE_F32 && y.type != CHORALE_F64) refuse_type("y", y.type, "floats or doubles");
      return batch{.x = numbers_of("x", x, x_), .y = {}, .rows = x.rows};
    };
    auto const n = y.width * y.rows;
    if (y.type == CHORALE_F64) online_.predict_on(rows, Span<double>{static_cast<double*>(y.data), n});
    else online_.predict_on(rows, Span<float>{static_cast<float*>(y.data), n});
  }
  void save(char const* file) override { trainer_.save(file); }
  void load(char const* file) override { trainer_.load(file); }
  void set_learning_rate(double rate) override { trainer_.set_learning_rate(static_cast<float>(rate)); }

 private:
  using batch                         = typename M::batch;
  using target                        = typename M::target;
  static constexpr std::size_t inputs = M::input::size, outputs = M::output::size,
                               targets = loss::targets_of<decltype(M::loss)>(M::output::size);

  batch batch_of(chorale_rows const& x, chorale_rows const& y) {
    expect_rows("x", x, inputs);
    expect_rows("y", y, targets);
    if (x.rows != y.rows)
      throw BadArgument{sentence("x has {} rows, but y has {}.", x.rows, y.rows), "a row of y for each row of x."};
    return {.x = numbers_of("x", x, x_), .y = numbers_of("y", y, y_), .rows = x.rows};
  }

  Trainer<M, S, R, T> trainer_;
  OnlineTraining<M, S, R, T> online_{trainer_};
  std::vector<float> x_;  // rounded doubles
  std::vector<target> y_;
};

/// Makes the trainer of the model that a program asks for: what a library's chorale_create calls.
///
///   extern "C" int chorale_create(char const* name, int communicator, std::uint64_t seed, chorale_trainer** trainer) {
///     return c::create({name, communicator, Seed{seed}}, trainer, c::Model{"surrogate", [](c::Job const& job) {
///       return c::mpi_trainer(nn::compile<Surrogate>(loss::MeanSquaredError{}, optim::Adam{}), job);
///     }});
///   }
///
/// returns   the code for the caller
template <class... Make> int create(Job const& job, chorale_trainer** trainer, Model<Make> const&... models) noexcept {
  return guarded([&] {
    given(trainer, "trainer") = nullptr;
    auto const wanted         = std::string_view{job.model == nullptr ? "" : job.model};
    auto names                = std::string{};
    auto const try_one        = [&](auto const& model) {
      names.append(names.empty() ? "" : ", ") += std::string{model.name};
      if (*trainer != nullptr || (!wanted.empty() && wanted != model.name)) return;
      using Made = std::invoke_result_t<decltype(model.make) const&, Job const&>;
      if constexpr (trains_network<Made>) *trainer = Trainers::add(std::make_shared<TrainerOf<Made>>(model.make, job));
      else
        static_assert(sizeof(Made) == 0,
                      "chorale: a library for C has models of networks that are an "
                             "nn::Sequential, with rows of one input and one target. Make a Trainer of "
                             "one that nn::compile has made");
    };
    (try_one(models), ...);
    if (*trainer == nullptr)
      throw BadArgument{"this library has no model " + in_quotes(wanted) + ".", "one of its models: " + names + "."};
  });
}

/// A trainer of this process alone, on one device, for libraries without MPI.
///
/// throws  BadArgument when the program has named a communicator
template <class M> auto alone(M model, Job const& job) {
  if (job.communicator != CHORALE_ALONE)
    throw BadArgument{sentence("chorale_create got the communicator {}, but the model trains alone.", job.communicator),
                      "CHORALE_ALONE, or a library whose model is made by c::mpi_trainer."};
  return Trainer{std::move(model), OneDeviceStrategy{}, DirectAllReduce{}, LocalTransport{}, job.seed};
}

}  // namespace chorale::c

// Emitted although nobody in the source file calls them.
extern "C" {

[[gnu::used]] inline int chorale_destroy(chorale_trainer* trainer) {
  return chorale::c::guarded([&] {
    if (trainer != nullptr) chorale::c::Trainers::take(trainer);
  });
}
[[gnu::used]] inline int chorale_train(chorale_trainer* trainer, chorale_rows x, chorale_rows y, double* loss) {
  return chorale::c::guarded([&] {
    auto const made = chorale::c::Trainers::at(trainer);
    made->train(x, y);
    if (loss != nullptr) *loss = made->scores.loss();
  });
}
[[gnu::used]] inline int chorale_evaluate(chorale_trainer* trainer, chorale_rows x, chorale_rows y, double* loss) {
  return chorale::c::guarded([&] {
    auto const made = chorale::c::Trainers::at(trainer);
    made->evaluate(x, y);
    if (loss != nullptr) *loss = made->scores.loss();
  });
}
[[gnu::used]] inline int chorale_metric(chorale_trainer const* trainer, char const* name, double* value) {
  return chorale::c::guarded([&] {
    auto const made                   = chorale::c::Trainers::at(trainer);
    chorale::c::given(value, "value") = made->scores[&chorale::c::given(name, "name")];
  });
}
[[gnu::used]] inline int chorale_predict(chorale_trainer* trainer, chorale_rows x, chorale_results y) {
  return chorale::c::guarded([&] { chorale::c::Trainers::at(trainer)->predict(x, y); });
}
[[gnu::used]] inline int chorale_save(chorale_trainer* trainer, char const* file) {
  return chorale::c::guarded([&] { chorale::c::Trainers::at(trainer)->save(&chorale::c::given(file, "file")); });
}
[[gnu::used]] inline int chorale_load(chorale_trainer* trainer, char const* file) {
  return chorale::c::guarded([&] { chorale::c::Trainers::at(trainer)->load(&chorale::c::given(file, "file")); });
}
[[gnu::used]] inline int chorale_widths(chorale_trainer const* trainer, size_t* inputs, size_t* targets,
                                        size_t* outputs) {
  return chorale::c::guarded([&] {
    auto const all = chorale::c::Trainers::at(trainer)->widths();
    if (inputs != nullptr) *inputs = all.inputs;
    if (targets != nullptr) *targets = all.targets;
    if (outputs != nullptr) *outputs = all.outputs;
  });
}
[[gnu::used]] inline int chorale_steps(chorale_trainer const* trainer, uint64_t* steps) {
  return chorale::c::guarded([&] { chorale::c::given(steps, "steps") = chorale::c::Trainers::at(trainer)->steps(); });
}
[[gnu::used]] inline int chorale_set_learning_rate(chorale_trainer* trainer, double rate) {
  return chorale::c::guarded([&] { chorale::c::Trainers::at(trainer)->set_learning_rate(rate); });
}
[[gnu::used]] inline char const* chorale_message(void) { return chorale::c::message.data(); }

}  // extern "C"
