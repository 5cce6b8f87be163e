// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/file_cache_format.hpp>
#include <chorale/data/stages/file_cache_writer.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// A number for the stages that make the rows of a cache: of their description, as ranks compare it, and of
/// InFile::functions. Rows in memory count with a checksum of a sample of them, files with their names and sizes.
///
/// keeps   equal descriptions have equal keys, on any machine
template <class D> std::uint64_t cache_key(D const& from, std::string const& functions) {
  auto lines = std::vector<std::string>{};
  data::describe(from, lines);
  lines.push_back(functions);
  auto key = Fnv1a<std::uint64_t>{};
  for (auto const& line : lines) key.add(line + '\n');
  return key.value();
}

/// All rows of a dataset, in a file after the first read of the first run. See Pipe::cache(InFile).
///
///   first run    source ─► path.partial-… ─► synced ─► renamed to path ─┐
///   later runs                                                 path ────┴─► mapped ─► views
///
/// keeps   rows have the bits, the order and the widths of the source, and may differ in width. An existing file is
///         used if it was made by the same stages: see cache_key(), which does not see into functions
/// order   pass 0 is kept, whichever pass is read first
/// cost    without a file, the first read runs a whole pass, and other threads wait for it. Later reads copy
///         nothing; the first read of a row in a program checks its checksum. Memory: the system's cache of the file
/// throws  what the pass throws, BadArgument when it has another number of rows than its size() says, or BadFile when
///         the file cannot be written: it does not exist then, and the next read retries. BadFile when the file is
///         damaged, cut, of another kind, or has other types, fields, stages or another number of rows
/// source  tf.data.Dataset.cache(filename)
template <class D> class FileCached : public Pipe<FileCached<D>> {
  static_assert(is_row<typename D::element>, "chorale: cache keeps rows, not batches. Put it before .batch(n).");

 public:
  using element                = typename D::element;
  static constexpr bool stable = true;

 private:
  static constexpr std::size_t n_fields = detail::fields_of<element>;

  class Store {
   public:
    Store(D from, InFile where) : from_{std::move(from)}, where_{std::move(where)} {}

    std::optional<std::size_t> size() const { return from_.size(); }
    D const& from() const { return from_; }

    CacheFile const& file() {
      auto const lock = std::lock_guard{mutex_};  // once per stream, not once per row
      if (file_) return *file_;
      auto const wanted = fields();
      if (!open(wanted)) fill(wanted);
      return *file_;
    }

    bool next(CacheFile const& file, CacheFile::Cursor& cursor, Span<ConstBytes> row) {
      auto const at    = cursor.row;
      auto const check = at < checked_ ? CacheFile::Check::none : CacheFile::Check::all;
      auto const more  = file.next(cursor, row, check);
      if (check == CacheFile::Check::none) return more;
      for (auto before = checked_.load(); before <= at && !checked_.compare_exchange_weak(before, at + 1);) continue;
      return more;
    }

   private:
    CacheFields fields() const {
      auto made = cache_fields<element>();
      made.key  = cache_key(from_, where_.functions);
      return made;
    }
    bool open(CacheFields const& wanted) {
      auto found = CacheFile::open(where_.path, wanted);
      if (!found) return false;
      auto const expected = from_.size();
      if (expected && *expected != found->rows())
        found->fail(16, std::to_string(found->rows()) + " rows, but the stage before the cache makes " +
                            std::to_string(*expected));
      file_.emplace(std::move(*found));
      return true;
    }
    void fill(CacheFields const& wanted) {
      auto from = from_.stream(0);
      auto to   = CacheWriter{where_.path, wanted};
      auto rows = std::size_t{0};
      for (auto row = element{}; from.next(row); ++rows) {
        detail::RowType<element>::expect_shape(rows, row);
        std::apply([&](auto const&... spans) { to.write(std::array<ConstBytes, n_fields>{std::as_bytes(spans)...}); },
                   detail::fields(row));
      }
      auto const expected = from_.size();
      CHORALE_EXPECTS(!expected || *expected == rows, "the stage before the cache says that it makes " +
                                                          std::to_string(expected.value_or(0)) + " rows, and made " +
                                                          std::to_string(rows) + "; the next run would refuse " +
                                                          where_.path.string());
      file_.emplace(to.finish());
    }

    D from_;
    InFile where_;
    std::mutex mutex_;
    std::optional<CacheFile> file_;
    std::atomic<std::uint64_t> checked_{0};  // rows with a correct checksum; the end counts as one
  };

 public:
  class Stream {
   public:
    explicit Stream(std::shared_ptr<Store> store) : store_{std::move(store)} {}

    bool next(element& out) {
      if (file_ == nullptr) file_ = &store_->file(), cursor_ = file_->begin();
      auto row = std::array<ConstBytes, n_fields>{};
      if (!store_->next(*file_, cursor_, row)) return false;
      auto&& spans = detail::fields(out);
      detail::for_each_index<n_fields>([&](auto i) {
        using T            = std::tuple_element_t<i, detail::OfNumbers<std::tuple, element>>;
        std::get<i>(spans) = {reinterpret_cast<T const*>(row[i].data()), row[i].size() / sizeof(T)};
      });
      return true;
    }

   private:
    std::shared_ptr<Store> store_;
    CacheFile const* file_ = nullptr;
    CacheFile::Cursor cursor_;
  };

  FileCached(D from, InFile where) {
    CHORALE_EXPECTS(!where.path.empty(), "cache(InFile) needs the path of a file");
    store_ = std::make_shared<Store>(std::move(from), std::move(where));
  }

  Stream stream(std::size_t) const { return Stream{store_}; }
  std::optional<std::size_t> size() const { return store_->size(); }

  void describe(std::vector<std::string>& lines) const { data::describe(store_->from(), lines); }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace chorale::data
