// SPDX-License-Identifier: Apache-2.0
// More than 300 lines: the coordinator, and the shares of its datasets, which it alone uses.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/coordinator/closure.hpp>
#include <chorale/strategy/coordinator/messages.hpp>
#include <chorale/strategy/coordinator/worker.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::detail {

enum class ClosureStage { waiting, done, failed, cancelled };

/// A scheduled closure.
struct ClosureTask {
  std::string name;
  ClosureRequest request{};
  std::vector<std::size_t> data{};  // datasets, in the order of the parameters
  std::vector<std::byte> arguments{}, result{};
  ClosureStage stage = ClosureStage::waiting;
  std::exception_ptr error{};  // failed, cancelled: what fetch() throws

  bool settled() const { return stage != ClosureStage::waiting; }
};

/// A coordinator's end of the connection to one worker: one closure at a time.
template <Endpoint E> class WorkerConnection {
 public:
  /// rank    of the worker; worker 0 is rank 1
  WorkerConnection(E& at, Rank rank, Tag tag) : exchange_{at, rank, tag} {}

  int worker() const { return exchange_.peer() - 1; }
  bool busy() const { return exchange_.busy(); }
  bool lost() const { return lost_; }
  std::string const& why() const { return why_; }                                // the worker is lost
  std::shared_ptr<ClosureTask> take() { return std::exchange(task_, nullptr); }  // the closure, once not busy()
  ClosureReply const& reply() const { return reply_; }

  void begin(std::shared_ptr<ClosureTask> task) {
    task_          = std::move(task);
    request_       = task_->request;
    request_.bytes = task_->arguments.size();
    exchange_.request().add(parameter_server::bytes_of(request_));
    exchange_.request().add_cut(task_->arguments);
    exchange_.begin(parameter_server::bytes_of(reply_));
  }

  /// Asks the worker to end; it sends no reply.
  void leave() {
    if (lost()) return;
    request_ = {};
    exchange_.request().add(parameter_server::bytes_of(request_));
    exchange_.begin_without_reply();
  }

  /// Advances the request; true if there was progress. Afterwards the worker may be lost().
  bool advance() {
    try {
      return step();
    } catch (PeerLost const& lost) {
      if (lost.rank() != exchange_.peer()) throw;  // this rank cannot go on
      return lose(lost);
    } catch (Error const& error) {  // it sent another message
      auto& at = exchange_.endpoint();
      if (parameter_server::knows_lost(at, at.rank())) throw;
      try {  // it has replied, and so received all
        if (!parameter_server::knows_lost(at, exchange_.peer()))
          exchange_.request().advance(at, exchange_.peer(), exchange_.tag());
      } catch (PeerLost const& lost) {
        if (lost.rank() != exchange_.peer()) throw;
      }
      if (!parameter_server::knows_lost(at, exchange_.peer()) && !exchange_.request().empty()) throw;
      return lose(error);
    }
  }

 private:
  bool lose(Error const& error) {
    exchange_.abandon();
    lost_ = true;
    why_  = error.what();
    return true;
  }

  bool step() {
    auto& at = exchange_.endpoint();
    if (!busy() && parameter_server::knows_lost(at, exchange_.peer()))
      at.recv(exchange_.peer(), exchange_.tag(), {}).wait();  // throws the reason
    return exchange_.advance([this] {
      check();
      task_->result.clear();
      exchange_.reply().add_growing(reply_.bytes, 0, parameter_server::growing(task_->result));
    });
  }

  void check() const {
    auto const same_data =
        std::ranges::equal(reply_.data, request_.data, {}, &DataPosition::dataset, &DataPosition::dataset);
    if (reply_.magic == closure_magic && reply_.number == request_.number && reply_.bytes <= closure_limit && same_data)
      return;
    throw Disagreement{Fault::collective_mismatch,
                       sentence("worker {} (rank {}) sent what is no reply to closure {}.", worker(), exchange_.peer(),
                                request_.number),
                       "the same program in all processes."};
  }

  parameter_server::RequestReply<E> exchange_;
  bool lost_ = false;
  std::string why_;
  std::shared_ptr<ClosureTask> task_;
  ClosureRequest request_;
  ClosureReply reply_;
};

/// Shares of the datasets, one per worker at the start: which worker reads each share, and how far it has been read.
///
/// keeps   an element is taken once a closure that read it has replied, whether it failed or not
class DatasetShards {
 public:
  explicit DatasetShards(int workers) : runs_(static_cast<std::size_t>(workers)) {
    for (int w = 0; w < workers; ++w) owner_.push_back(w);
  }

  /// Adds a dataset, and returns its index.
  std::size_t add_dataset(std::uint64_t id, std::string const& name) {
    for (auto const& other : data_)
      CHORALE_EXPECTS(other[0].dataset != id, "the dataset \"" + name + "\" was created before");
    data_.emplace_back(owner_.size(), DataPosition{.dataset = id});
    return data_.size() - 1;
  }
  std::size_t datasets() const { return data_.size(); }

  /// Sets where a closure reads on this worker: of the shares that the worker owns, in the one that was read least.
  void begin(ClosureTask& task, int worker) {
    auto share = std::size_t{0};
    auto least = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t s = 0; s < owner_.size(); ++s)
      if (owner_[s] == worker && runs_[s] < least) {
        share = s;
        least = runs_[s];
      }
    task.request.share  = static_cast<std::int32_t>(share);
    task.request.shares = static_cast<std::int32_t>(owner_.size());
    for (std::size_t i = 0; i < task.data.size(); ++i) task.request.data[i] = data_[task.data[i]][share];
    if (!task.data.empty()) ++runs_[share];
  }

  void taken(ClosureTask const& task, std::array<DataPosition, most_datasets> const& to) {
    for (std::size_t i = 0; i < task.data.size(); ++i) data_[task.data[i]][share_of(task)] = to[i];
  }

  /// Undoes begin() for a closure whose worker was lost.
  void lost(ClosureTask const& task) {
    if (!task.data.empty()) --runs_[share_of(task)];
  }

  /// Gives the shares of a worker to other workers in turn.
  ///
  /// lives   lives(worker) is true for live workers; if there is none, nothing changes
  template <class Lives> void take_over(int worker, Lives&& lives) {
    auto others = std::vector<int>{};
    for (int w = 0; w < static_cast<int>(owner_.size()); ++w)
      if (lives(w)) others.push_back(w);
    if (others.empty()) return;
    for (auto next = std::size_t{0}; auto& owner : owner_)
      if (owner == worker) owner = others[next++ % others.size()];
  }

 private:
  static std::size_t share_of(ClosureTask const& task) { return static_cast<std::size_t>(task.request.share); }

  std::vector<int> owner_;                       // [share]
  std::vector<std::uint64_t> runs_;              // [share]: closures that read it
  std::vector<std::vector<DataPosition>> data_;  // [dataset][share]: the next element
};

}  // namespace chorale::detail

namespace chorale {

template <class E, class Here> class Coordinator;

/// The result of a closure, once a worker has reported it. Copies share one result. See Coordinator::fetch().
template <class R> class RemoteValue {
 public:
  bool ready() const { return task_->stage == detail::ClosureStage::done; }

 private:
  template <class E, class Here> friend class Coordinator;
  explicit RemoteValue(std::shared_ptr<detail::ClosureTask> task) : task_{std::move(task)} {}

  std::shared_ptr<detail::ClosureTask> task_;
};

/// A dataset that this coordinator's workers share, as an argument of closures. See create_per_worker_dataset().
template <class Element> class PerWorkerHandle {
  template <class E, class Here> friend class Coordinator;
  explicit PerWorkerHandle(std::size_t index) : index_{index} {}

  std::size_t index_;
};

/// Distributes closures to workers, each to one that is free.
///
///   auto losses = std::vector<RemoteValue<float>>{};
///   for (int i = 0; i < 100; ++i) losses.push_back(coordinator.schedule(train, batches, 10));
///   coordinator.join();
///   auto const last = coordinator.fetch(losses.back());
///
/// ranks   0 coordinates, 1 to `workers` run closures, others are servers
/// keeps   a closure whose worker is lost before it replies runs again on another; only one attempt gives the result.
///         Pushes of the lost attempt stay, each wholly or not at all: a closure that pushes several times may thus
///         push some gradients twice
///         used by one thread, whose calls start closures: a worker that becomes free between calls waits
/// throws  from schedule(), join(), fetch(): PeerLost when no worker is left, or a server is lost
/// source  tf.distribute.coordinator.ClusterCoordinator
template <class E, class Here> class Coordinator {
 public:
  /// at      endpoint of rank 0; it outlives the coordinator
  Coordinator(E& at, int workers, CoordinatorOptions options = {}) : at_{&at}, options_{options}, shares_{workers} {
    CHORALE_EXPECTS(at.rank() == 0 && workers >= 1 && workers < at.size() && options.queue > 0,
                    "rank " + std::to_string(at.rank()) + " of " + std::to_string(at.size()) + " cannot coordinate " +
                        std::to_string(workers) + " workers: rank 0 does, and workers follow it");
    links_.reserve(static_cast<std::size_t>(workers));
    for (int w = 0; w < workers; ++w) links_.emplace_back(at, w + 1, options.tag);
  }
  ~Coordinator() {
    try {
      leave();
    } catch (std::exception const& error) {
      fail(*at_, error.what());  // before memory is freed that others may use
    }
  }
  Coordinator(Coordinator const&)            = delete;
  Coordinator& operator=(Coordinator const&) = delete;

  int workers() const { return static_cast<int>(links_.size()); }  // at the start
  int lost() const {                                               // of them
    return static_cast<int>(std::ranges::count_if(links_, &Link::lost));
  }
  /// Why a worker is lost; empty if it is not.
  std::string const& why_lost(int worker) const { return links_[static_cast<std::size_t>(worker)].why(); }
  std::uint64_t repeated() const { return repeated_; }  // attempts that were lost with their worker

  /// Schedules a closure to run once, on any worker.
  ///
  /// arguments   the closure's arguments after `here`; a handle for each stream
  template <class F, class... Args> auto schedule(Closure<F> const& closure, Args const&... arguments) {
    using Signature     = detail::SignatureOf<F, Here>;
    using Parameters    = typename Signature::parameters;
    using Result        = std::decay_t<typename Signature::result>;
    constexpr bool fits = detail::expect_closure<F, Here>(), as_many = std::tuple_size_v<Parameters> == sizeof...(Args);
    static_assert(!fits || as_many,
                  "chorale: schedule() takes the closure, and the arguments that it has behind `here`, as many");
    auto task             = std::make_shared<detail::ClosureTask>();
    task->name            = closure.name();
    task->request.closure = closure.id();
    if constexpr (fits && as_many) pack(*task, static_cast<Parameters*>(nullptr), arguments...);
    add(task);
    return RemoteValue<Result>{std::move(task)};
  }

  /// Gives each worker its own share of a dataset, which closures read as a stream.
  template <class Element>
  PerWorkerHandle<Element> create_per_worker_dataset(PerWorkerDataset<Element> const& dataset) {
    return PerWorkerHandle<Element>{shares_.add_dataset(dataset.id(), dataset.name())};
  }

  /// True if no closure waits or runs.
  bool done() {
    while (look()) {}
    return waiting_.empty() && !running();
  }

  /// Waits until all closures have run.
  ///
  /// throws  the error of the first closure that failed, with its name, once the closures beside it have ended.
  ///         Closures that had not begun are cancelled, also if scheduled before join(); then scheduling can continue
  void join() {
    await([&] { return waiting_.empty() && !running(); });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  /// Waits for one result, while other closures run, and returns it.
  ///
  /// throws  the error of the closure; Error when it was cancelled
  template <class R> R fetch(RemoteValue<R> const& remote) {
    auto const& task = *remote.task_;
    await([&] { return task.settled(); });
    if (task.error) std::rethrow_exception(task.error);
    if constexpr (detail::Travels<R>) return detail::Unpacked{task.result}.template take<R>();
    else if constexpr (!std::is_void_v<R>) std::terminate();  // schedule() has refused the closure
  }
  template <class R> std::vector<R> fetch(std::vector<RemoteValue<R>> const& remotes) {
    auto values = std::vector<R>{};
    for (auto const& remote : remotes) values.push_back(fetch(remote));
    return values;
  }

  /// Cancels waiting closures, waits for running ones, ends the workers. The last call; else the destructor does it.
  void leave() {
    if (std::exchange(left_, true)) return;
    cancel("the coordinator has closed");
    await([&] { return !running(); });
    for (auto& link : links_) link.leave();
    await([&] { return !running(); });
  }

 private:
  using Link = detail::WorkerConnection<E>;
  using Task = std::shared_ptr<detail::ClosureTask>;

  template <class... P, class... Args>
  void pack(detail::ClosureTask& task, std::tuple<P...>*, Args const&... arguments) {
    auto packed = detail::Packed{};
    (pack_one<P>(task, packed, arguments), ...);
    task.arguments = std::move(packed.bytes);
    CHORALE_EXPECTS(task.arguments.size() <= detail::closure_limit,
                    "the arguments of closure \"" + task.name + "\" have " + std::to_string(task.arguments.size()) +
                        " bytes; at most " + std::to_string(detail::closure_limit) + " travel");
  }

  template <class P, class A> void pack_one(detail::ClosureTask& task, detail::Packed& packed, A const& argument) {
    if constexpr (detail::StreamOf<P>::value) {
      constexpr bool is_handle = std::is_same_v<A, PerWorkerHandle<typename detail::StreamOf<P>::element>>;
      static_assert(is_handle,
                    "chorale: where a closure has a WorkerStream<Element>&, schedule() takes what "
                    "create_per_worker_dataset() returned for a PerWorkerDataset<Element>");
      if constexpr (is_handle) {
        CHORALE_EXPECTS(argument.index_ < shares_.datasets(),
                        "closure \"" + task.name + "\" has a stream of another coordinator");
        task.data.push_back(argument.index_);
      }
    } else {
      using Value             = std::decay_t<P>;
      constexpr bool converts = std::is_convertible_v<A const&, Value>;
      static_assert(converts,
                    "chorale: an argument of schedule() does not convert to the type of the closure's "
                    "parameter in its place");
      if constexpr (converts) packed.put(static_cast<Value>(argument));
    }
  }

  void add(Task const& task) {
    CHORALE_EXPECTS(!left_, "closure \"" + task->name + "\" was scheduled after the coordinator had left");
    await([&] { return error_ || waiting_.size() < options_.queue; });
    if (error_) return cancel(*task, "another one failed before join()");
    waiting_.push_back(task);
    while (look()) {}
  }

  bool running() const { return std::ranges::any_of(links_, &Link::busy); }

  template <class Done> void await(Done&& done) {
    for (auto idle = parameter_server::Idle{};;) {
      while (look()) idle.busy();
      if (done()) return;
      idle.rest_at(*at_);
    }
  }

  /// Advances running closures, and starts waiting ones on free workers; true if there was progress.
  bool look() {
    auto moved = false;
    for (auto& link : links_) {
      if (link.lost()) continue;
      moved |= link.advance();
      if (link.busy()) continue;
      auto const task = link.take();
      if (link.lost()) lose(link, task);
      else if (task) settle(link, *task);
    }
    if (!waiting_.empty() && lost() == workers()) give_up();
    for (auto& link : links_) {
      if (waiting_.empty() || link.lost() || link.busy()) continue;
      begin(link, waiting_.front());
      waiting_.pop_front();
      moved = true;
    }
    expect_servers();
    return moved;
  }

  void begin(Link& link, Task const& task) {
    task->request.number = ++number_;
    shares_.begin(*task, link.worker());
    link.begin(task);
  }

  void settle(Link& link, detail::ClosureTask& task) {
    auto const& reply = link.reply();
    shares_.taken(task, reply.data);
    if (reply.failed == 0) {
      task.stage = detail::ClosureStage::done;
      return;
    }
    task.stage = detail::ClosureStage::failed;
    task.error = detail::error_from(reply.failed,
                                    "closure \"" + task.name + "\" failed on worker " + std::to_string(link.worker()),
                                    {reinterpret_cast<char const*>(task.result.data()), task.result.size()});
    if (!error_) error_ = task.error;
    cancel("closure \"" + task.name + "\" failed before it began");
  }

  /// Handles a lost worker: its closure waits again, before all others, and its shares of the data go to other workers.
  void lose(Link& link, Task const& task) {
    last_lost_ = link.worker();
    if (task) {
      ++repeated_;
      shares_.lost(*task);
      task->stage = detail::ClosureStage::waiting;
      if (error_ || left_) cancel(*task, "its worker was lost");
      else waiting_.push_front(task);
    }
    shares_.take_over(link.worker(), [&](int w) { return !links_[static_cast<std::size_t>(w)].lost(); });
  }

  void cancel(detail::ClosureTask& task, std::string const& why) {
    task.stage = detail::ClosureStage::cancelled;
    task.error = std::make_exception_ptr(Error{"closure \"" + task.name + "\" was cancelled: " + why + "."});
  }
  void cancel(std::string const& why) {
    for (auto const& task : waiting_) cancel(*task, why);
    waiting_.clear();
  }

  [[noreturn]] void give_up() {
    expect_servers();
    auto const& last = links_[static_cast<std::size_t>(last_lost_)];
    throw PeerLost{last_lost_ + 1,
                   "all " + std::to_string(workers()) + " workers are lost, and closure \"" + waiting_.front()->name +
                       "\" waits, with " + std::to_string(waiting_.size() - 1) +
                       " after it. The last one: " + last.why(),
                   "a restart from the last checkpoint; more workers."};
  }

  /// throws  PeerLost when a server is lost
  void expect_servers() {
    for (Rank rank = workers() + 1; rank < at_->size(); ++rank)
      if (parameter_server::knows_lost(*at_, rank))
        throw PeerLost{rank,
                       "server " + std::to_string(rank - workers() - 1) + " of " +
                           std::to_string(at_->size() - workers() - 1) + " (rank " + std::to_string(rank) +
                           ") is gone, and its shard of the variables with it.",
                       "a restart of all ranks from the last checkpoint."};
  }

  E* at_;
  CoordinatorOptions options_;
  std::vector<Link> links_;  // [worker]
  std::deque<Task> waiting_;
  detail::DatasetShards shares_;
  std::uint64_t number_ = 0, repeated_ = 0;
  std::exception_ptr error_;  // the first, for join()
  int last_lost_ = 0;         // worker
  bool left_     = false;
};

}  // namespace chorale
