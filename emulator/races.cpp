// Finds data races from what happened before what: barriers of the block and of lanes of a warp. What is found does not
// depend on the order in which the emulator runs the threads.

#include <algorithm>

#include "interpreter.h"

namespace cppcuda::emulator {
namespace {

bool is_before(const Past& past, const Past& now, const std::array<unsigned, 32>& clock) {
  if (!std::equal(past.block, past.block + 3, now.block)) return false;
  if (past.thread == now.thread || past.barriers < now.barriers) return true;
  return past.thread / 32 == now.thread / 32 && past.time < clock[past.thread % 32];
}

void add(std::vector<Past>& past, const Past& now) {
  for (Past& one : past) {
    if (one.thread == now.thread && std::equal(one.block, one.block + 3, now.block)) {
      one = now;
      return;
    }
  }
  past.push_back(now);
}

}  // namespace

void order_warp(Warp& w, uint32_t lanes) {
  std::array<unsigned, 32> latest{};
  for_lanes(lanes, [&](int l) {
    ++w.clocks[l][l];
    for (int k = 0; k < 32; ++k) latest[k] = std::max(latest[k], w.clocks[l][k]);
  });
  for_lanes(lanes, [&](int l) { w.clocks[l] = latest; });
}

void check_access(Warp& w, const Instruction& i, int lane, const Place& place, unsigned bytes) {
  Block& b = *w.block;
  const auto address = reinterpret_cast<uint64_t>(place.memory);
  Cells& cells = place.space == Space::shared ? b.cells : *b.global_cells;
  const auto& clock = w.clocks[lane];
  const Past now{{b.id[0], b.id[1], b.id[2]}, w.number * 32 + static_cast<unsigned>(lane), b.barriers, clock[lane], &i};
  const auto check = [&](const Past& past, uint64_t cell, Access access) {
    if (is_before(past, now, clock)) return;
    static constexpr const char* names[] = {" reads", " writes", " adds atomically"};
    const auto text = [&](const Past& one, Access kind) {
      const std::string place = place_of(*b.kernel, *one.instruction);
      return name_of_thread(b, one.block, one.thread) + names[static_cast<int>(kind)] +
             (place.empty() ? ": " + one.instruction->text : " in " + place);
    };
    const uint64_t at =
        place.space == Space::shared ? 2 * cell - reinterpret_cast<uint64_t>(b.shared.data()) : 2 * cell;
    throw Error("a race at " + name_of_memory(place.space, at) + ": " + text(past, access) + ", and " +
                text(now, i.access) + ", and nothing orders them");
  };
  for (uint64_t n = address / 2; n <= (address + bytes - 1) / 2; ++n) {
    Cell& cell = cells[n];
    if (cell.is_written) check(cell.write, n, Access::write);
    if (i.access != Access::read) {
      for (const Past& past : cell.reads) check(past, n, Access::read);
    }
    if (i.access != Access::atomic) {
      for (const Past& past : cell.atomics) check(past, n, Access::atomic);
    }
    if (i.access == Access::write) {
      cell = {true, now, {}, {}};
    } else {
      add(i.access == Access::read ? cell.reads : cell.atomics, now);
    }
  }
}

}  // namespace cppcuda::emulator
