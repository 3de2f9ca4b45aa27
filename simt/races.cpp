#include "races.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "simt.h"

extern "C" const char __executable_start[];

namespace cppcuda::simt {
namespace {

// The vector clock of a thread. Its own time advances only at barriers of its warp.
struct Clock {
  unsigned block_barriers = 0;
  std::array<unsigned, 32> lanes{};  // the latest known time of each lane of its warp
};

struct Past {
  unsigned block, thread, grid_barriers, block_barriers, time;
  const void* code;
};

// Two bytes of memory.
struct Cell {
  bool written = false;
  Past write;
  std::vector<Past> reads, atomics;  // since the write; at most one of each thread
};

// Cells by address, in pages, because most accesses are near the last one.
class Cells {
 public:
  Cell& operator[](uintptr_t cell) {
    const uintptr_t page = cell / page_cells;
    if (!last_ || page != last_page_) {
      auto& found = pages_[page];
      if (!found) found = std::make_unique<Page>();
      last_ = found.get();
      last_page_ = page;
    }
    return (*last_)[cell % page_cells];
  }
  void clear() {
    pages_.clear();
    last_ = nullptr;
  }

 private:
  static constexpr uintptr_t page_cells = 1024;
  using Page = std::array<Cell, page_cells>;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  Page* last_ = nullptr;
  uintptr_t last_page_ = 0;
};

// The line of an access, and after it those of the calls that are inlined.
std::string line_of(const void* code) {
  char command[256];
  // The address after a call belongs to the next line.
  const auto offset = static_cast<size_t>(static_cast<const char*>(code) - __executable_start - 1);
  std::snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe %#zx", static_cast<int>(getpid()), offset);
  std::string lines;
  if (FILE* pipe = popen(command, "r")) {
    char buffer[512];
    while (std::fgets(buffer, sizeof buffer, pipe)) {
      std::string line = buffer;
      line = line.substr(line.rfind('/') + 1);
      lines += (lines.empty() ? "" : " < ") + line.substr(0, line.find_first_of(" \n"));
    }
    pclose(pipe);
  }
  return lines;
}

std::string name_of(const Past& access) {
  return "thread " + std::to_string(access.thread) + " of block " + std::to_string(access.block);
}

class Detector final : public Observer {
 public:
  void begin_launch() override {
    global_.clear();
    shared_.clear();
    clocks_.clear();
    grid_barriers_ = 0;
    race_.clear();
  }
  void begin_block(unsigned block, size_t threads) override {
    clocks_[block].assign(threads, {});
    shared_[block].clear();
  }
  void end_block(unsigned block) override {
    clocks_.erase(block);
    shared_.erase(block);
  }
  void sync_block(unsigned block) override {
    for (Clock& clock : clocks_[block]) ++clock.block_barriers;
  }
  void sync_warp(unsigned block, size_t first, unsigned mask) override {
    auto& clocks = clocks_[block];
    std::array<unsigned, 32> latest{};
    const auto for_each_lane = [&](auto f) {
      for (size_t lane = 0; lane < 32; ++lane) {
        if (mask >> lane & 1) f(clocks[first + lane], lane);
      }
    };
    for_each_lane([&](Clock& clock, size_t lane) {
      ++clock.lanes[lane];
      for (size_t i = 0; i < 32; ++i) latest[i] = std::max(latest[i], clock.lanes[i]);
    });
    for_each_lane([&](Clock& clock, size_t) { clock.lanes = latest; });
  }
  void sync_grid() override { ++grid_barriers_; }
  void end_launch() override {
    if (!race_.empty()) throw Error(race_);
  }

  void access(const void* address, size_t bytes, AccessKind kind, const void* code) {
    if (launch_number() == 0 || !race_.empty()) return;
    const Memory memory = memory_of(address);
    if (memory == Memory::other) return;
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const Clock& clock = clocks_[block][thread];
    const Past now{block, thread, grid_barriers_, clock.block_barriers, clock.lanes[thread % 32], code};
    auto& cells = memory == Memory::global ? global_ : shared_[block];
    const auto first = reinterpret_cast<uintptr_t>(address) / 2,
               last = (reinterpret_cast<uintptr_t>(address) + bytes - 1) / 2;
    for (uintptr_t i = first; i <= last; ++i) {
      Cell& cell = cells[i];
      if (cell.written && !is_before(cell.write, now, clock)) {
        return report(cell.write, AccessKind::write, now, kind, address);
      }
      const auto follows_all = [&](const std::vector<Past>& past, AccessKind past_kind) {
        if (past_kind == kind) return true;
        for (const Past& one : past) {
          if (is_before(one, now, clock)) continue;
          report(one, past_kind, now, kind, address);
          return false;
        }
        return true;
      };
      if (!follows_all(cell.reads, AccessKind::read) || !follows_all(cell.atomics, AccessKind::atomic)) return;
      if (kind != AccessKind::write) {
        add(kind == AccessKind::read ? cell.reads : cell.atomics, now);
        continue;
      }
      cell.reads.clear();
      cell.atomics.clear();
      cell.write = now;
      cell.written = true;
    }
  }

 private:
  static bool is_before(const Past& past, const Past& now, const Clock& clock) {
    if (past.block == now.block && past.thread == now.thread) return true;
    if (past.grid_barriers < now.grid_barriers) return true;
    if (past.block != now.block) return false;
    if (past.block_barriers < now.block_barriers) return true;
    return past.thread / 32 == now.thread / 32 && past.time < clock.lanes[past.thread % 32];
  }

  static void add(std::vector<Past>& past, const Past& now) {
    for (Past& one : past) {
      if (one.block == now.block && one.thread == now.thread) {
        one = now;
        return;
      }
    }
    past.push_back(now);
  }

  void report(const Past& past, AccessKind past_kind, const Past& now, AccessKind kind, const void* address) {
    constexpr const char* names[] = {" reads in ", " writes in ", " calls atomicAdd in "};
    std::ostringstream os;
    os << "a race at " << address << ": " << name_of(past) << names[static_cast<int>(past_kind)] << line_of(past.code)
       << ", and " << name_of(now) << names[static_cast<int>(kind)] << line_of(now.code) << ", and nothing orders them";
    race_ = os.str();
  }

  Cells global_;
  std::unordered_map<unsigned, Cells> shared_;               // by block
  std::unordered_map<unsigned, std::vector<Clock>> clocks_;  // by block
  unsigned grid_barriers_ = 0;
  std::string race_;
};

Detector detector;

[[maybe_unused]] const bool set_by_environment = [] {
  check_races(std::getenv("CPPCUDA_SIMT_RACES") != nullptr);
  preempt_threads(std::getenv("CPPCUDA_SIMT_PREEMPT") != nullptr);
  return true;
}();

}  // namespace

void check_races(bool on) { observer = on ? &detector : nullptr; }

void preempt_threads(bool on) { preempts = on; }

void check_access(const void* address, size_t bytes, AccessKind kind, const void* code) {
  if (observer) detector.access(address, bytes, kind, code);
}

}  // namespace cppcuda::simt
