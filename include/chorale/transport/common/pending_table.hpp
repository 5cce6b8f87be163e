// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale {

/// Identifies one operation in flight. A default-constructed ticket identifies none, and counts as done.
struct Ticket {
  std::size_t place  = 0;
  std::uint64_t turn = 0;  // of this place: 1, 2, ..
};

/// Operations that an endpoint drives by itself. Each has a place, so that it continues after its pending is destroyed.
///
/// Item    default-constructible, with done() like a Pending
/// keeps   an item stays in its place, with what it owns, for the next operation there: nothing is allocated once there
///         are as many places as operations at a time
/// cost    a free place is found by a search of all places
template <class Item> class PendingTable {
 public:
  /// Returns a free place. If there is none, the places of operations that are done are freed first.
  ///
  /// fits    true for items that are preferred among the free places
  /// keeps   an operation whose peer is lost keeps its place, and throws when it is polled: the others are not affected
  template <class Fits> Ticket take(Fits fits) {
    auto place = find_free(fits);
    if (place == places_.size()) {
      each([](Item& item) { return is_done(item); });
      place = find_free(fits);
    }
    if (place == places_.size()) places_.emplace_back();
    places_[place].busy = true;
    return {place, ++places_[place].turn};
  }
  Ticket take() {
    return take([](Item const&) { return true; });
  }

  Item& operator[](Ticket ticket) { return places_[ticket.place].item; }

  bool is_over(Ticket ticket) const {
    return ticket.turn == 0 || places_[ticket.place].turn != ticket.turn || !places_[ticket.place].busy;
  }
  void finish(Ticket ticket) { places_[ticket.place].busy = false; }

  /// Polls an operation, and frees its place if it is done.
  bool done(Ticket ticket) {
    if (is_over(ticket)) return true;
    if (!(*this)[ticket].done()) return false;
    finish(ticket);
    return true;
  }

  /// Calls f for each item in flight; those for which it returns true are done.
  template <class F> void each(F f) {
    for (auto& place : places_)
      if (place.busy && f(place.item)) place.busy = false;
  }

 private:
  struct Place {
    Item item;
    std::uint64_t turn = 0;
    bool busy          = false;
  };

  static bool is_done(Item& item) {
    try {
      return item.done();
    } catch (PeerLost const&) { return false; }
  }

  template <class Fits> std::size_t find_free(Fits const& fits) const {  // the number of places if all are busy
    auto found = places_.size();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].busy) continue;
      found = i;
      if (fits(places_[i].item)) break;
    }
    return found;
  }

  std::vector<Place> places_;
};

/// Pending of an endpoint that drives its operations by itself: polls `Driver` with its ticket.
///
/// Driver  done(Ticket) and wait(Ticket); does not move while operations are in flight
template <class Driver> class TablePending {
 public:
  TablePending() = default;
  TablePending(Driver& driver, Ticket ticket) : driver_{&driver}, ticket_{ticket} {}

  bool done() { return driver_ == nullptr || driver_->done(ticket_); }
  void wait() {
    if (driver_ != nullptr) driver_->wait(ticket_);
  }

 private:
  Driver* driver_ = nullptr;
  Ticket ticket_;
};

}  // namespace chorale
