// Runs blocks, warps and lanes. Lanes of a warp that are at the same instruction execute it together. The lanes that
// are farthest behind run first, so that diverged lanes meet again as early as possible; with Options::schedule any
// lanes may run. Lanes wait at .sync instructions for those of the mask, and at barriers for the block. A block starts
// when the one before it has ended, or has run for long: it may wait for others.

#include <cxxabi.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <regex>

#include "interpreter.h"

namespace cppcuda::emulator {

// Whether emulator.h lists a variable. A misspelt one would select nothing.
static bool is_known(const std::string& name) {
  static const char* const names[] = {"APPROX",  "ARCH",   "CONTRACT", "EVERY_KERNEL", "GRID_STRIDE", "RACES",
                                      "REPLACE", "REPORT", "RESIDENT", "SCHEDULE",     "WITHOUT"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* known) { return name == std::string("CPPCUDA_EMULATOR_") + known; });
}

Options& options() {
  static Options all = [] {
    for (char** variable = environ; *variable; ++variable) {
      const std::string name(*variable, std::strcspn(*variable, "="));
      if (name.starts_with("CPPCUDA_EMULATOR_") && !is_known(name)) throw Error("there is no variable " + name);
    }
    Options o;
    const auto number = [](const char* name) {
      const char* text = std::getenv(name);
      return text ? std::atoi(text) : 0;
    };
    o.approx = number("CPPCUDA_EMULATOR_APPROX");
    o.contract = number("CPPCUDA_EMULATOR_CONTRACT") != 0;
    o.races = number("CPPCUDA_EMULATOR_RACES") != 0;
    o.schedule = static_cast<unsigned>(number("CPPCUDA_EMULATOR_SCHEDULE"));
    if (const int share = number("CPPCUDA_EMULATOR_GRID_STRIDE")) o.grid_stride = static_cast<unsigned>(share);
    if (const int blocks = number("CPPCUDA_EMULATOR_RESIDENT")) o.resident = blocks;
    return o;
  }();
  return all;
}

void check_races(bool on) { options().races = on; }

// ---- memory

struct Range {
  uint64_t begin, end;
  std::string what;
};

struct Memory {
  static constexpr unsigned recent = 4;
  std::map<uint64_t, Range> ranges;  // by their begin
  Range none{1, 0, ""};
  const Range* known[recent] = {&none, &none, &none, &none};  // the last ones that were found
  unsigned next_known = 0;

  void forget_known() { std::fill(known, known + recent, &none); }
};

// All libraries that contain the emulator share this object: a static variable of an inline function exists once in a
// process if the function is visible. It is created at its first use, because modules register their variables before
// the global variables of this file are initialised.
[[gnu::visibility("default")]] inline Memory& memory() {
  static auto* const all = new Memory;
  return *all;
}

namespace {

std::string of_bytes(uint64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

// The range with an address, or the last one before it; null if there is none.
const Range* range_at(uint64_t address) {
  const auto after = memory().ranges.upper_bound(address);
  return after == memory().ranges.begin() ? nullptr : &std::prev(after)->second;
}

}  // namespace

void add_range(const void* base, size_t bytes, std::string what) {
  const auto begin = reinterpret_cast<uint64_t>(base);
  memory().forget_known();
  memory().ranges[begin] = {begin, begin + bytes, std::move(what)};
}

void remove_range(const void* base) {
  memory().ranges.erase(reinterpret_cast<uint64_t>(base));
  memory().forget_known();
}

std::string name_of_memory(Space space, uint64_t address) {
  if (space != Space::global) {
    const char* name = space == Space::shared ? "shared" : space == Space::local ? "local" : "parameter";
    return "byte " + std::to_string(address) + " of " + name + " memory";
  }
  const Range* r = range_at(address);
  if (!r) return "an address before all memory of the device";
  return "byte " + std::to_string(address - r->begin) + " of " + r->what + ", which has " + of_bytes(r->end - r->begin);
}

Place resolve(Warp& w, Space space, uint64_t address, unsigned bytes, int lane) {
  Block& b = *w.block;
  if (space == Space::generic) {
    const uint64_t window = address & window_mask;
    space = window == shared_window  ? Space::shared
            : window == local_window ? Space::local
            : window == param_window ? Space::param
                                     : Space::global;
    if (space != Space::global) address -= window;
  }
  const auto check = [&](size_t size) {
    if (address <= size && bytes <= size - address) return;
    throw Error("out of bounds: " + of_bytes(bytes) + " at " + name_of_memory(space, address) + ", which has " +
                of_bytes(size));
  };
  switch (space) {
    case Space::shared:
      check(b.shared.size());
      if (w.slice[1] && (address < w.slice[0] || address + bytes > w.slice[1])) {
        throw Error("out of bounds: " + of_bytes(bytes) + " at " + name_of_memory(space, address) +
                    ", but the warp's slice is from " + std::to_string(w.slice[0]) + " to " +
                    std::to_string(w.slice[1]));
      }
      return {space, b.shared.data() + address, b.shared_defined.data() + address};
    case Space::local: {
      const size_t size = b.kernel->info.local;
      check(size);
      const size_t at = static_cast<size_t>(lane) * size + address;
      return {space, w.local.data() + at, w.local_defined.data() + at};
    }
    case Space::param:
      check(b.kernel->info.param_bytes);
      return {space, const_cast<unsigned char*>(b.params) + address, nullptr};
    default:
      break;
  }
  auto* const at = reinterpret_cast<unsigned char*>(address);
  Memory& m = memory();
  for (const Range* r : m.known) {
    if (address >= r->begin && address + bytes <= r->end) return {Space::global, at, nullptr};
  }
  const Range* r = range_at(address);
  if (!r || address + bytes > r->end) {
    throw Error("out of bounds: " + of_bytes(bytes) + " at " + name_of_memory(Space::global, address));
  }
  m.known[m.next_known++ % Memory::recent] = r;
  return {Space::global, at, nullptr};
}

// ---- names

std::string readable_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (!text) return mangled;
  std::string name = text;
  std::free(text);
  int depth = 0;
  for (size_t k = name.size(); k-- > 0;) {  // the parameters are in the last parentheses
    depth += name[k] == ')' ? 1 : name[k] == '(' ? -1 : 0;
    if (depth == 0) {
      name.resize(k);
      break;
    }
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  static const auto& noise = *new std::regex(R"(\bv\d+(_\d+)+::|\(anonymous namespace\)::)");
  return std::regex_replace(name, noise, "");
}

std::string place_of(const Kernel& kernel, const Instruction& i) {
  std::string text;
  for (const Line& at : {i.line, i.inlined_at}) {
    const std::string file = kernel.module->file(at.file);
    if (file.empty()) continue;
    text += (text.empty() ? "" : " < ") + file.substr(file.rfind('/') + 1) + ":" + std::to_string(at.line);
  }
  return text;
}

std::string name_of_thread(const Block& block, const unsigned (&id)[3], unsigned thread) {
  const auto& [x, y, z] = block.launch->block;
  const auto triple = [](unsigned a, unsigned b, unsigned c) {
    return "(" + std::to_string(a) + ", " + std::to_string(b) + ", " + std::to_string(c) + ")";
  };
  return "thread " + triple(thread % x, thread / x % y, thread / x / y) + " of block " + triple(id[0], id[1], id[2]);
}

void add_lines(const Kernel& kernel, std::map<std::string, bool>& lines) {
  for (const Instruction& i : kernel.code) {
    const std::string file = kernel.module->file(i.line.file);
    if (!file.empty()) lines[file + ":" + std::to_string(i.line.line)] |= i.has_run;
  }
}

// ---- warps

namespace {

std::string hex(uint32_t mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", mask);
  return text;
}

struct Scheduler {
  Kernel& kernel;
  const Instruction* const code;
  std::minstd_rand random;

  explicit Scheduler(Kernel& k) : kernel(k), code(k.code.data()), random(options().schedule + 1) {}

  // "thread (1, 0, 0) of block (0, 0, 0) in kernel.cuh:12", the first of the lanes
  std::string where(const Warp& w, uint32_t mask, int pc) const {
    const std::string place = place_of(kernel, code[pc]);
    return name_of_thread(*w.block, w.block->id, w.number * 32 + static_cast<unsigned>(__builtin_ctz(mask))) +
           (place.empty() ? "" : " in " + place);
  }

  [[noreturn]] void fail(const Warp& w, uint32_t mask, int pc, const std::string& what) const {
    if (w.lane >= 0) mask = 1u << w.lane;
    throw Error(readable_name(kernel.name) + ": " + what + "; " + where(w, mask, pc) + ", PTX: " + code[pc].text);
  }

  // Lets lanes go on that wait for others of their warp, if these have arrived.
  void release_syncs(Warp& w) {
    for (uint32_t rest = w.sync; rest;) {
      const int first = __builtin_ctz(rest), pc = w.pc[first];
      const uint32_t members = w.sync_mask[first];
      uint32_t here = 0;
      for_lanes(rest, [&](int l) {
        if (w.pc[l] == pc && w.sync_mask[l] == members) here |= 1u << l;
      });
      rest &= ~here;
      if (here != (members & w.threads & ~w.done)) continue;
      const Instruction& i = code[pc];
      try {
        i.run(w, i, here);
      } catch (const Error& e) {
        fail(w, here, pc, e.what());
      }
      for_lanes(here, [&](int l) { w.pc[l] = pc + 1; });
      w.sync &= ~here;
      w.run |= here;
    }
  }

  void release_barrier(Block& b) {
    for (unsigned id = 0; id < 16; ++id) {
      if (b.arrived[id] == 0) continue;
      const unsigned expected = b.expected[id] ? b.expected[id] : b.threads - b.exited;
      if (b.arrived[id] < expected) continue;
      b.arrived[id] = 0;
      if (options().races && expected != b.threads - b.exited) {
        throw Error(readable_name(kernel.name) + ": races are not found in kernels with barriers of a part of a block");
      }
      ++b.barriers;
      unsigned votes = 0;  // of the threads whose last operand is not zero
      bool defined = true;
      const auto for_threads = [&](auto f) {  // that reduce
        for (Warp& w : b.warps) {
          for_lanes(w.bar, [&](int l) {
            const Instruction& i = code[w.pc[l]];
            if (w.bar_id[l] == id && i.reduction) f(w, l, i);
          });
        }
      };
      for_threads([&](Warp& w, int l, const Instruction& i) {
        const Ref& value = i.src[i.srcs - 1];
        votes += (w.get(value, l) != 0) != value.negated;
        defined &= (w.defined[value.index] >> l & 1) != 0;
      });
      for_threads([&](Warp& w, int l, const Instruction& i) {
        w.set(i.dst[0], l, i.reduction == '&' ? votes == expected : i.reduction == '|' ? votes != 0 : votes);
        w.define(i.dst[0], 1u << l, defined ? 1u << l : 0);
      });
      for (Warp& w : b.warps) {
        uint32_t here = 0;
        for_lanes(w.bar, [&](int l) {
          if (w.bar_id[l] == id) here |= 1u << l;
        });
        if (!here) continue;
        const int pc = w.pc[__builtin_ctz(here)];
        for_lanes(here, [&](int l) {
          if (code[w.pc[l]].mode == 1 && w.pc[l] != pc)
            fail(w, here, pc, "the lanes of a warp are at different barriers");
          ++w.pc[l];
        });
        w.bar &= ~here;
        w.run |= here;
      }
    }
  }

  void call(Warp& w, const Instruction& i, uint32_t mask, int pc) {
    if (i.call.find("__assert") == std::string::npos) fail(w, mask, pc, "trap");
    const int lane = __builtin_ctz(mask);
    const auto text = [&](int k) {
      uint64_t pointer;
      const uint64_t at = w.get(i.src[k], lane);
      std::memcpy(&pointer, w.local.data() + static_cast<size_t>(lane) * kernel.info.local + at, 8);
      return std::string(reinterpret_cast<const char*>(pointer));
    };
    fail(w, mask, pc, text(1) + ": " + text(0));
  }

  // Runs a warp until all of its lanes wait or have ended, or for `budget` instructions.
  void run(Warp& w, int64_t budget) {
    Block& b = *w.block;
    const bool is_random = options().schedule != 0;
    Counts& counts = *b.counts;
    while (w.run && budget > 0) {
      int pc = 0, limit = std::numeric_limits<int>::max();
      int64_t slice = budget;
      if (is_random) {
        int n = static_cast<int>(random() % static_cast<unsigned>(__builtin_popcount(w.run)));
        uint32_t rest = w.run;
        while (n--) rest &= rest - 1;
        pc = w.pc[__builtin_ctz(rest)];
        slice = std::min<int64_t>(budget, 1 + random() % 64);
      } else {
        pc = limit;
        for_lanes(w.run, [&](int l) { pc = std::min(pc, w.pc[l]); });
      }
      uint32_t active = 0;
      for_lanes(w.run, [&](int l) {
        if (w.pc[l] == pc) {
          active |= 1u << l;
        } else if (!is_random) {
          limit = std::min(limit, w.pc[l]);
        }
      });
      if (is_random && random() % 8 == 0) {  // some of them go on alone
        const uint32_t some = active & ((random() >> 3) * 0x10001u);
        if (some) active = some;
      }
      const auto save = [&] { for_lanes(active, [&](int l) { w.pc[l] = pc; }); };
      for (;;) {
        if (pc >= limit || slice <= 0) {
          save();
          break;
        }
        --slice;
        --budget;
        const Instruction& i = code[pc];
        uint32_t m = active;
        if (i.guard.index >= 0) {
          if ((w.defined[i.guard.index] & active) != active) fail(w, active, pc, "the predicate is undefined");
          m &= w.predicate(i.guard) ^ (i.guard.negated ? ~0u : 0);
        }
        const auto threads = static_cast<unsigned>(__builtin_popcount(m));
        i.has_run |= m != 0;
        counts.instructions += threads;
        counts.issued += 1;
        if (i.kind == Kind::normal) {
          if (m) {
            if (!i.own_taint) {
              uint32_t d = ~0u;
              for (int k = 0; k < i.srcs; ++k) d &= w.defined[i.src[k].index];
              if ((d & m) != m && i.taint != Taint::all) {
                taint_halves(w, i, m);
              } else {
                for (int k = 0; k < i.dsts; ++k) w.define(i.dst[k], m, d);
              }
            }
            try {
              if (i.mxcsr) {
                const uint32_t saved = _mm_getcsr();
                _mm_setcsr(i.mxcsr);
                i.run(w, i, m);
                _mm_setcsr(saved);
              } else {
                i.run(w, i, m);
              }
              if (i.saturate && i.type.is_float() && i.from.kind == 0) saturate(w, i, m);
            } catch (const Error& e) {
              fail(w, m, pc, e.what());
            }
          }
          ++pc;
          continue;
        }
        if (i.kind == Kind::branch) {
          if (m == active) {
            pc = i.target;
            continue;
          }
          if (m == 0) {
            ++pc;
            continue;
          }
          for_lanes(active, [&](int l) { w.pc[l] = m >> l & 1 ? i.target : pc + 1; });
          break;
        }
        if (m == 0) {
          ++pc;
          continue;
        }
        // The lanes of m stop here, the others go on.
        for_lanes(active, [&](int l) { w.pc[l] = m >> l & 1 ? pc : pc + 1; });
        w.run &= ~m;
        if (i.kind == Kind::exit) {
          w.done |= m;
          b.exited += threads;
          release_syncs(w);
          release_barrier(b);
        } else if (i.kind == Kind::warp_sync) {
          const Ref& members = i.src[i.srcs - 1];
          if ((w.defined[members.index] & m) != m) fail(w, m, pc, "the mask is undefined");
          for_lanes(m, [&](int l) {
            w.sync_mask[l] = static_cast<uint32_t>(w.get(members, l));
            if (!(w.sync_mask[l] >> l & 1)) {
              fail(w, 1u << l, pc, "the mask " + hex(w.sync_mask[l]) + " lacks its own lane " + std::to_string(l));
            }
          });
          w.sync |= m;
          release_syncs(w);
        } else if (i.kind == Kind::barrier) {
          for_lanes(m, [&](int l) {
            const auto id = static_cast<unsigned>(w.get(i.src[0], l));
            if (id >= 16) fail(w, m, pc, "no such barrier");
            w.bar_id[l] = static_cast<uint8_t>(id);
            ++b.arrived[id];
            b.expected[id] = i.srcs > 1 + (i.reduction != 0) ? static_cast<unsigned>(w.get(i.src[1], l)) : 0;
          });
          w.bar |= m;
          release_barrier(b);
        } else {
          call(w, i, m, pc);
        }
        break;
      }
    }
  }

  // Throws an error that says who waits for whom.
  [[noreturn]] void deadlock(const Block& b) const {
    for (const Warp& w : b.warps) {
      if (!w.sync) continue;
      const int lane = __builtin_ctz(w.sync), pc = w.pc[lane];
      const uint32_t members = w.sync_mask[lane];
      for_lanes(members, [&](int l) {
        if (w.sync >> l & 1 && w.pc[l] == pc && w.sync_mask[l] == members) return;
        std::string other = "which the block does not have";
        if (w.done >> l & 1) other = "which has exited";
        if ((w.sync | w.bar) >> l & 1) {
          const std::string place = place_of(kernel, code[w.pc[l]]);
          other = "which waits at " + code[w.pc[l]].text + (place.empty() ? "" : " in " + place);
        }
        fail(w, 1u << lane, pc, "waits with mask " + hex(members) + " for lane " + std::to_string(l) + ", " + other);
      });
    }
    std::string text;
    for (const Warp& w : b.warps) {
      for (uint32_t rest = w.bar; rest && text.size() < 500;) {
        const int lane = __builtin_ctz(rest), pc = w.pc[lane];
        for_lanes(rest, [&](int l) {
          if (w.pc[l] == pc) rest &= ~(1u << l);
        });
        text += (text.empty() ? "" : ", ") + where(w, 1u << lane, pc) + " at " + code[pc].text;
      }
    }
    throw Error(readable_name(kernel.name) + ": threads wait for each other at different barriers: " + text);
  }

  // Returns whether the block has ended.
  bool step(Block& b, int64_t budget) {
    bool runs = false;
    const size_t n = b.warps.size(), first = options().schedule ? random() % n : 0;
    for (size_t k = 0; k < n; ++k) {
      Warp& w = b.warps[(first + k) % n];
      if (!w.run) continue;
      runs = true;
      run(w, options().schedule ? 1 + random() % 512 : budget);
    }
    if (b.exited == b.threads) return true;
    if (!runs) deadlock(b);
    return false;
  }
};

struct Pool {  // the registers of warps, with the kernel's constants
  Kernel& kernel;
  std::vector<unsigned char*> free, all;

  unsigned char* take() {
    if (!free.empty()) {
      unsigned char* const r = free.back();
      free.pop_back();
      return r;
    }
    auto* const r = static_cast<unsigned char*>(std::aligned_alloc(64, kernel.register_bytes));
    std::memset(r, 0xA5, kernel.register_bytes);
    for (const auto& c : kernel.constants) {
      for (int l = 0; l < 32; ++l) std::memcpy(r + c.offset + l * std::max<int>(c.width, 1), &c.bits, c.width);
    }
    all.push_back(r);
    return r;
  }
  ~Pool() {
    for (unsigned char* r : all) std::free(r);
  }
};

void fill_specials(const Kernel& k, const Launch& launch, Warp& w) {
  const unsigned bx = launch.block[0], by = launch.block[1];
  const unsigned threads = bx * by * launch.block[2];
  for (const auto& [offset, which] : k.specials) {
    auto* const to = reinterpret_cast<uint32_t*>(w.registers + offset);
    for (unsigned l = 0; l < 32; ++l) {
      const unsigned t = w.number * 32 + l;
      uint32_t v = 0;
      switch (which) {
        case Special::tid_x:
          v = t % bx;
          break;
        case Special::tid_y:
          v = t / bx % by;
          break;
        case Special::tid_z:
          v = t / bx / by;
          break;
        case Special::ntid_x:
          v = bx;
          break;
        case Special::ntid_y:
          v = by;
          break;
        case Special::ntid_z:
          v = launch.block[2];
          break;
        case Special::ctaid_x:
          v = w.block->id[0];
          break;
        case Special::ctaid_y:
          v = w.block->id[1];
          break;
        case Special::ctaid_z:
          v = w.block->id[2];
          break;
        case Special::nctaid_x:
          v = launch.grid[0];
          break;
        case Special::nctaid_y:
          v = launch.grid[1];
          break;
        case Special::nctaid_z:
          v = launch.grid[2];
          break;
        case Special::laneid:
          v = l;
          break;
        case Special::warpid:
          v = w.number;
          break;
        case Special::nwarpid:
          v = (threads + 31) / 32;
          break;
        case Special::smid:
          v = w.block->id[0] % 16;
          break;
        case Special::nsmid:
          v = 16;
          break;
        case Special::lanemask_eq:
          v = 1u << l;
          break;
        case Special::lanemask_lt:
          v = (1u << l) - 1;
          break;
        case Special::lanemask_le:
          v = (2u << l) - 1;
          break;
        case Special::lanemask_gt:
          v = ~((2u << l) - 1);
          break;
        case Special::lanemask_ge:
          v = ~((1u << l) - 1);
          break;
        case Special::dynamic_smem:
          v = static_cast<uint32_t>(launch.dynamic_shared);
          break;
        case Special::total_smem:
          v = static_cast<uint32_t>(w.block->shared.size());
          break;
      }
      to[l] = v;
    }
  }
}

}  // namespace

const KernelInfo& info(Kernel& kernel) {
  kernel.parse();
  return kernel.info;
}
Counts& counts(Kernel& kernel) { return kernel.counts; }

void run(Kernel& kernel, const Launch& launch, void** arguments) {
  kernel.parse();
  const unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > kernel.info.max_threads) {
    throw Error(readable_name(kernel.name) + ": launched with " + std::to_string(threads) +
                " threads, compiled for at most " + std::to_string(kernel.info.max_threads));
  }
  std::vector<unsigned char> params(std::max<size_t>(kernel.info.param_bytes, 1), 0xA5);
  for (size_t k = 0; k < kernel.parameters.size(); ++k) {
    std::memcpy(params.data() + kernel.parameters[k].offset, arguments[k], kernel.parameters[k].bytes);
  }
  Counts counts;
  counts.launches = 1;
  const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  counts.threads = blocks * threads;
  Cells global_cells;
  Pool pool{kernel, {}, {}};
  Scheduler scheduler(kernel);
  std::vector<std::unique_ptr<Block>> running;
  std::vector<std::unique_ptr<Block>> spare;
  uint64_t next = 0;
  const auto start = [&] {
    auto block = spare.empty() ? std::make_unique<Block>() : std::move(spare.back());
    if (!spare.empty()) spare.pop_back();
    Block& b = *block;
    b.kernel = &kernel;
    b.launch = &launch;
    b.id[0] = static_cast<unsigned>(next % launch.grid[0]);
    b.id[1] = static_cast<unsigned>(next / launch.grid[0] % launch.grid[1]);
    b.id[2] = static_cast<unsigned>(next / launch.grid[0] / launch.grid[1]);
    ++next;
    b.params = params.data();
    b.counts = &counts;
    b.threads = threads;
    b.exited = 0;
    const size_t shared = (kernel.info.static_shared + 15) / 16 * 16 + launch.dynamic_shared;
    b.barriers = 0;
    b.cells.clear();
    b.global_cells = &global_cells;
    b.forgotten.clear();
    b.shared.assign(shared, 0xFF);
    b.shared_defined.assign(shared, 0);
    b.warps.resize((threads + 31) / 32);
    for (unsigned n = 0; n < b.warps.size(); ++n) {
      Warp& w = b.warps[n];
      w.block = &b;
      w.number = n;
      const unsigned lanes = std::min(32u, threads - n * 32);
      w.threads = w.run = lanes == 32 ? ~0u : (1u << lanes) - 1;
      w.sync = w.bar = w.done = 0;
      std::fill(w.pc, w.pc + 32, 0);
      if (!w.registers) w.registers = pool.take();
      w.defined.assign(static_cast<size_t>(kernel.registers), 0);
      w.defined[always_defined] = w.defined[sink] = ~0u;
      w.halves.assign(static_cast<size_t>(kernel.registers), {});
      w.local.assign(32 * kernel.info.local, 0xFF);
      w.local_defined.assign(32 * kernel.info.local, 0);
      w.slice[0] = w.slice[1] = 0;
      w.clocks = {};
      w.lane = -1;
      fill_specials(kernel, launch, w);
    }
    running.push_back(std::move(block));
  };
  const size_t at_first = launch.cooperative ? blocks : options().schedule ? 3 : 1;
  const unsigned rounds_before_next = options().schedule ? 10'000 : 50;
  unsigned rounds = 0;
  try {
    while (next < blocks || !running.empty()) {
      while (next < blocks && (running.size() < at_first || (rounds >= rounds_before_next && running.size() < 1024))) {
        rounds = 0;
        start();
      }
      ++rounds;
      for (size_t k = 0; k < running.size();) {
        if (scheduler.step(*running[k], 20'000)) {
          spare.push_back(std::move(running[k]));
          running.erase(running.begin() + static_cast<std::ptrdiff_t>(k));
          rounds = 0;
        } else {
          ++k;
        }
      }
      if (counts.instructions > 20'000'000'000) throw Error(readable_name(kernel.name) + ": does not end");
    }
  } catch (...) {
    kernel.counts += counts;
    throw;
  }
  kernel.counts += counts;
}

}  // namespace cppcuda::emulator
