#pragma once

// The parts of the interpreter that parse.cpp, operations.cpp and run.cpp share.

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx.h"

namespace cppcuda::emulator {

// The modes (emulator.h). They are read from the environment when the program starts.
struct Options {
  int approx = 0;
  bool contract = false, races = false;
  unsigned schedule = 0, grid_stride = 1;
  int resident = 3;
};
Options& options();

enum class Space : uint8_t { generic, global, shared, local, param };
// Generic addresses of shared, local and parameter memory. No address of the host is like these.
constexpr uint64_t window_mask = 0xffff'0000'0000'0000, shared_window = 0x4000'0000'0000'0000,
                   local_window = 0x4100'0000'0000'0000, param_window = 0x4200'0000'0000'0000;

// A register, or a constant or special register, which are registers that are filled before a warp starts.
struct Ref {
  uint32_t offset = 0;  // in the registers of a warp
  int32_t index = -1;   // of the mask of the lanes in which it is defined
  uint8_t width = 0;    // bytes; 0: a predicate, which is a mask of lanes
  bool negated = false;
};
constexpr int32_t always_defined = 0, sink = 1;  // indices

struct Type {
  char kind = 0;  // u, s, f (IEEE), h (bfloat16), b, p
  int bits = 0;
  bool pair = false;
  bool is_float() const { return kind == 'f' || kind == 'h'; }
  bool operator==(const Type&) const = default;
};

struct Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&, uint32_t mask);

// How definedness goes through an instruction whose operands are only partly defined: all or nothing, or 16 bits by 16
// bits.
enum class Taint : uint8_t { all, move, pack, unpack, bits, bits_and, shift_left, shift_right };

enum class Access : uint8_t { read, write, atomic };

enum class Kind : uint8_t { normal, branch, exit, barrier, warp_sync, trap };

// A line of the sources, from a .loc directive. File 0: none.
struct Line {
  unsigned file = 0, line = 0;
};

struct Instruction {
  Kind kind = Kind::normal;
  Handler run = nullptr;
  Ref guard, dst[8], src[12];
  uint8_t dsts = 0, srcs = 0;
  bool own_taint = false;  // the handler sets which lanes of dst are defined
  Taint taint = Taint::all;
  bool saturate = false;
  uint32_t mxcsr = 0;  // if not 0, for the time of the instruction
  // of memory accesses
  Space space = Space::generic;
  uint8_t count = 1, size = 0;                  // a vector of `count` values of `size` bytes
  bool is_signed = false, is_constant = false;  // constants have a cache of their own
  Access access = Access::read;
  Ref base;  // index -1: none
  int64_t offset = 0;
  int target = -1;     // of a branch
  int mode = 0;        // of a handler
  char reduction = 0;  // of a barrier: '&', '|' or '+'
  Type type, from;
  std::string text, call;
  Line line, inlined_at;
  mutable bool has_run = false;
};

enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  dynamic_smem,
  total_smem
};

struct Parameter {
  std::string name;
  uint32_t offset, bytes;
};

class Kernel {
 public:
  Module* module = nullptr;
  std::string name;
  std::string_view declaration, body;  // the parameters with directives; from { to }
  bool parsed = false;
  KernelInfo info;
  std::vector<Parameter> parameters;
  std::vector<Instruction> code;
  uint32_t register_bytes = 0;
  int32_t registers = 0;
  struct Constant {
    uint32_t offset;
    uint8_t width;
    uint64_t bits;
  };
  std::vector<Constant> constants;
  std::vector<std::pair<uint32_t, Special>> specials;  // 32 bits wide
  Counts counts;

  void parse();
};

// ---- state

struct Block;

// Two bytes of memory, for finding races: the accesses since the last write, at most one read of each thread.
struct Past {
  unsigned block[3], thread, barriers, time;
  const Instruction* instruction;
};
struct Cell {
  bool is_written = false;
  Past write;
  std::vector<Past> reads, atomics;
};

// Cells by address, in pages, because most accesses are near the last one.
class Cells {
 public:
  Cell& operator[](uint64_t n) {
    if (!last_ || n / page != last_number_) {
      auto& found = pages_[n / page];
      if (!found) found = std::make_unique<std::array<Cell, page>>();
      last_ = found.get();
      last_number_ = n / page;
    }
    return (*last_)[n % page];
  }
  void clear() {
    pages_.clear();
    last_ = nullptr;
  }

 private:
  static constexpr uint64_t page = 128;
  std::unordered_map<uint64_t, std::unique_ptr<std::array<Cell, page>>> pages_;
  std::array<Cell, page>* last_ = nullptr;
  uint64_t last_number_ = 0;
};

struct Warp {
  Block* block = nullptr;
  unsigned number = 0;
  uint32_t threads = 0, run = 0, sync = 0, bar = 0, done = 0;  // masks of lanes; each thread is in one of the last four
  int32_t pc[32];
  uint32_t sync_mask[32];
  uint8_t bar_id[32];
  unsigned char* registers = nullptr;
  std::vector<uint32_t> defined;                // by register: the lanes in which all of it is defined
  std::vector<std::array<uint32_t, 4>> halves;  // in other lanes: whether each 16 bits are
  std::vector<unsigned char> local, local_defined;
  std::array<std::array<unsigned, 32>, 32> clocks;  // for races: the latest time of each lane that each lane knows
  int lane = -1;                                    // whose access is made, for errors
  uint64_t slice[2] = {};                           // of shared memory: begin and end, if the warp has one

  template <class T>
  T* at(const Ref& r) const {
    return reinterpret_cast<T*>(registers + r.offset);
  }
  uint32_t& predicate(const Ref& r) const { return *at<uint32_t>(r); }
  uint64_t get(const Ref& r, int lane) const {
    switch (r.width) {
      case 1:
        return at<uint8_t>(r)[lane];
      case 2:
        return at<uint16_t>(r)[lane];
      case 4:
        return at<uint32_t>(r)[lane];
      case 8:
        return at<uint64_t>(r)[lane];
      default:
        return predicate(r) >> lane & 1;
    }
  }
  void set(const Ref& r, int lane, uint64_t value) const {
    switch (r.width) {
      case 1:
        at<uint8_t>(r)[lane] = static_cast<uint8_t>(value);
        break;
      case 2:
        at<uint16_t>(r)[lane] = static_cast<uint16_t>(value);
        break;
      case 4:
        at<uint32_t>(r)[lane] = static_cast<uint32_t>(value);
        break;
      case 8:
        at<uint64_t>(r)[lane] = value;
        break;
      default:
        predicate(r) = (predicate(r) & ~(1u << lane)) | static_cast<uint32_t>(value & 1) << lane;
    }
  }
  void define(const Ref& r, uint32_t lanes, uint32_t are_defined) {
    if (r.index == sink) return;
    uint32_t& d = defined[r.index];
    d = (d & ~lanes) | (are_defined & lanes);
    if (const uint32_t undefined = lanes & ~are_defined) {
      for (uint32_t& half : halves[r.index]) half &= ~undefined;
    }
  }
  uint32_t half(const Ref& r, int h) const { return defined[r.index] | halves[r.index][h]; }
  void define_halves(const Ref& r, uint32_t lanes, const uint32_t* are_defined) {
    if (r.index == sink) return;
    uint32_t all = lanes;
    for (int h = 0; h < (r.width + 1) / 2; ++h) {
      uint32_t& to = halves[r.index][h];
      to = (to & ~lanes) | (are_defined[h] & lanes);
      all &= are_defined[h];
    }
    defined[r.index] = (defined[r.index] & ~lanes) | all;
  }
};

// How often a part of shared memory was forgotten, and how often each thread has asked for it (kit::forget).
struct Forgotten {
  unsigned times = 0;
  std::vector<unsigned> asked;
};

struct Block {
  Kernel* kernel;
  const Launch* launch;
  unsigned id[3];
  std::vector<Warp> warps;
  std::vector<unsigned char> shared, shared_defined;
  const unsigned char* params;
  Counts* counts;
  unsigned threads = 0, exited = 0;
  unsigned arrived[16] = {}, expected[16] = {};
  unsigned barriers = 0;  // that all threads have passed
  Cells cells;            // of shared memory
  Cells* global_cells = nullptr;
  std::map<std::pair<uint64_t, uint64_t>, Forgotten> forgotten;
};

template <class F>
void for_lanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

// ---- operations.cpp

using Modifiers = std::vector<std::string_view>;  // the parts of a mnemonic

// Completes an instruction, whose operands are set, for its mnemonic. Throws Error if it is unknown.
void choose(Instruction& i, const Modifiers& parts);
bool parse_type(std::string_view text, Type& type);

// Sets which parts of the results are defined, for Taint other than `all`.
void taint_halves(Warp& w, const Instruction& i, uint32_t mask);

// Limits a float32 result to [0, 1], as .sat does.
void saturate(Warp& w, const Instruction& i, uint32_t mask);

// ---- run.cpp

// Where an access is. `defined`: which bytes are, null in global memory.
struct Place {
  Space space;
  unsigned char *memory, *defined;
};
Place resolve(Warp& w, Space space, uint64_t address, unsigned bytes, int lane);  // throws Error

std::string place_of(const Kernel& kernel, const Instruction& i);  // "kernel.cuh:12 < launch.cuh:34", or ""
std::string name_of_thread(const Block& block, const unsigned (&block_id)[3], unsigned thread);
std::string name_of_memory(Space space, uint64_t address);  // the allocation and the offset

// Any access outside of the ranges of global memory is an error.
void add_range(const void* base, size_t bytes, std::string what);
void remove_range(const void* base);

// ---- races.cpp

// Throws Error if an access and an earlier one are a race.
void check_access(Warp& w, const Instruction& i, int lane, const Place& place, unsigned bytes);
void order_warp(Warp& w, uint32_t lanes);

}  // namespace cppcuda::emulator
