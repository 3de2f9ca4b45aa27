#include "emulator.h"

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "simt.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

// `__shared__` puts static arrays into this section. The symbols are weak because a program may have none.
extern "C" [[gnu::weak]] char __start_simt_shared[], __stop_simt_shared[];
extern "C" const char __executable_start[];

namespace cppcuda::simt {
namespace {

namespace context = boost::context;

constexpr int fill_byte = 0xFF;  // NaN in every floating-point type

// Not checked by AddressSanitizer, because it also copies the redzones between the arrays.
[[gnu::no_sanitize("address")]] void copy_static_shared(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) static_cast<volatile char*>(to)[i] = from[i];
}

size_t static_shared_bytes() { return __stop_simt_shared - __start_simt_shared; }

// Device memory.

std::map<void*, size_t>& allocations() {
  static std::map<void*, size_t> all;
  return all;
}

// The end of the allocation that contains an address; null if no allocation contains it.
const char* end_of_allocation(const void* address) {
  const auto after = allocations().upper_bound(const_cast<void*>(address));
  if (after == allocations().begin()) return nullptr;
  const auto& [memory, bytes] = *std::prev(after);
  const char* end = static_cast<const char*>(memory) + bytes;
  return address < end ? end : nullptr;
}

size_t allocations_made = 0;

uint64_t launches_made = 0;
bool is_repeating = false;  // the running launch

using Snapshot = std::vector<std::vector<char>>;  // the contents of allocations(), in their order

Snapshot snapshot() {
  Snapshot result;
  for (const auto& [memory, bytes] : allocations()) {
    const char* begin = static_cast<const char*>(memory);
    result.emplace_back(begin, begin + bytes);
  }
  return result;
}

void restore(const Snapshot& before) {
  size_t i = 0;
  for (const auto& [memory, bytes] : allocations())
    std::copy(before[i].begin(), before[i].end(), static_cast<char*>(memory)), ++i;
}

// What the running launch has summed with atomicAdd at an address. Sums in two orders differ by less than `count`
// roundings of `magnitude`.
struct AtomicSum {
  size_t bytes = 0, count = 0;
  double magnitude = 0;
};

std::unordered_map<const char*, AtomicSum>& atomic_sums() {
  static std::unordered_map<const char*, AtomicSum> all;
  return all;
}

template <class T>
T add_atomically(T* to, T value) {
  const T before = *to;
  if (!is_repeating) {
    AtomicSum& sum = atomic_sums()[reinterpret_cast<const char*>(to)];
    if (sum.count++ == 0) sum.magnitude = std::abs(before);
    sum.bytes = sizeof(T);
    sum.magnitude += std::abs(value);
  }
  *to = before + value;
  return before;
}

// Whether two values of a sum differ by rounding only. NaN is equal to NaN.
template <class T>
bool is_rounding(const AtomicSum& sum, const char* a, const char* b) {
  T x, y;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  const double bound = static_cast<double>(sum.count) * std::numeric_limits<T>::epsilon() * sum.magnitude;
  return (std::isnan(x) && std::isnan(y)) || x == y || std::abs(static_cast<double>(x) - y) <= bound;
}

// The first byte in which the contents of an allocation differ by more than the rounding of sums; the size if there is
// none.
size_t first_difference(const char* memory, const std::vector<char>& a, const std::vector<char>& b) {
  auto from = a.begin();
  for (;;) {
    from = std::mismatch(from, a.end(), b.begin() + (from - a.begin())).first;
    const size_t at = from - a.begin();
    if (from == a.end()) return at;
    size_t end = at;
    for (const size_t bytes : {sizeof(float), sizeof(double)}) {
      const size_t begin = at / bytes * bytes;
      const auto sum = atomic_sums().find(memory + begin);
      if (sum == atomic_sums().end() || sum->second.bytes != bytes) continue;
      const auto is_same = bytes == sizeof(float) ? is_rounding<float> : is_rounding<double>;
      if (is_same(sum->second, a.data() + begin, b.data() + begin)) end = begin + bytes;
    }
    if (end == at) return at;
    from = a.begin() + static_cast<std::ptrdiff_t>(end);
  }
}

// Reuses stacks, because allocating a new one for each thread would take most of the time.
class StackPool {
 public:
  context::stack_context allocate() {
    if (free_.empty()) free_.push_back(context::protected_fixedsize_stack(bytes).allocate());
    last_ = free_.back();
    free_.pop_back();
    return last_;
  }
  void deallocate(context::stack_context& stack) { free_.push_back(stack); }
  const context::stack_context& last() const { return last_; }

 private:
  static constexpr size_t bytes = size_t{256} << 10;  // AddressSanitizer's frames are large
  std::vector<context::stack_context> free_;
  context::stack_context last_;
};

StackPool& stack_pool() {
  static auto* pool = new StackPool;  // outlives every fiber
  return *pool;
}

struct PooledStack {
  context::stack_context allocate() { return stack_pool().allocate(); }
  void deallocate(context::stack_context& stack) { stack_pool().deallocate(stack); }
};

std::string text(const uint3& i) {
  std::ostringstream os;
  os << "(" << i.x << ", " << i.y << ", " << i.z << ")";
  return os.str();
}

std::string text(const Line& line) {
  const std::string file = line.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(line.line());
}

std::string hex(unsigned mask) {
  std::ostringstream os;
  os << "0x" << std::hex << mask;
  return os.str();
}

enum class State { ready, at_barrier, at_collective, at_grid_barrier, done };

struct Thread {
  uint3 block{}, index{};
  State state = State::ready;
  const char* waits_in = "";  // the function's name in CUDA
  Line line;
  // The arguments of a collective.
  unsigned mask = 0;
  int width = warpSize, argument = 0;
  uint64_t value = 0;
  // The suspended fiber, once it was started.
  context::fiber fiber;
  context::stack_context stack;

  std::string name() const { return "thread " + text(index) + " of block " + text(block); }
  std::string place() const { return std::string(waits_in) + " in " + text(line); }
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Shared memory on the heap. It has the exact size, so that AddressSanitizer finds accesses out of bounds.
struct SharedMemory {
  std::unique_ptr<void, Free> begin;
  size_t bytes;

  explicit SharedMemory(size_t bytes) : bytes(bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) throw std::bad_alloc();
    begin.reset(memory);
    fill();
  }
  void fill() { std::memset(begin.get(), fill_byte, bytes); }
  bool contains(const void* address) const {
    return address >= begin.get() && address < static_cast<const char*>(begin.get()) + bytes;
  }
};

// How often a part of shared memory was overwritten, and how often each thread has asked for it.
struct Forgotten {
  unsigned times = 0;
  std::vector<unsigned> asked;
};

struct Block {
  explicit Block(size_t shared_bytes) : shared(shared_bytes) {}

  unsigned number = 0;
  std::vector<Thread> threads;
  std::vector<size_t> ready;
  std::vector<char> static_shared;
  SharedMemory shared;
  bool takes_shared = false;         // all of it
  std::vector<SharedMemory> slices;  // of the warps, if they take slices instead
  std::map<std::pair<void*, size_t>, Forgotten> forgotten;
};

[[noreturn]] void refuse(const Thread& t, const std::string& what, const Line& line, const std::string& why) {
  throw Error(t.name() + ": " + what + " in " + text(line) + " " + why);
}

struct Cancelled {};

uint3 unflatten(uint64_t i, const dim3& size) {
  return {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
          static_cast<unsigned>(i / size.x / size.y)};
}

uint64_t volume(const dim3& size) { return uint64_t{size.x} * size.y * size.z; }

// Runs a grid once, in one order.
class Grid {
 public:
  Grid(const Launch& launch, const std::function<void()>& body, unsigned seed)
      : launch_(launch), body_(body), random_(seed) {
    const size_t blocks = launch.cooperative ? volume(launch.grid) : 1;
    while (blocks_.size() < blocks) blocks_.emplace_back(launch.shared_bytes);
    ::blockDim = launch.block;
    ::gridDim = launch.grid;
  }
  ~Grid() {
    cancel();
    running = nullptr;
  }
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  void run() {
    running = this;
    std::vector<unsigned> order(volume(launch_.grid));
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random_);
    if (!launch_.cooperative) {
      for (const unsigned b : order) run(b);
      return;
    }
    for (const unsigned b : order) begin(blocks_[b], b);
    for (bool waiting = true; waiting;) {
      for (const unsigned b : order) advance(blocks_[b]);
      waiting = release_grid_barrier();
    }
  }

  // Runs one block of a grid whose blocks do not wait for each other.
  void run(unsigned block) {
    running = this;
    begin(blocks_[0], block);
    advance(blocks_[0]);
    tell([&](Observer& o) { o.end_block(block); });
  }

  static inline Grid* running = nullptr;

  Thread& current() {
    if (!current_) throw Error("device code was called outside of a launch");
    return *current_;
  }

  void* shared(const Line& line) {
    Thread& t = current();
    if (!block_->slices.empty()) refuse(t, "shared_memory", line, "of a block that takes warp_memory");
    block_->takes_shared = true;
    return block_->shared.begin.get();
  }
  void* slice(size_t bytes, const Line& line) {
    Thread& t = current();
    auto& slices = block_->slices;
    const auto refuse_slice = [&](const std::string& why) {
      refuse(t, "warp_memory", line, "of " + std::to_string(bytes) + " bytes, " + why);
    };
    if (block_->takes_shared) refuse_slice("but the block takes shared_memory");
    if (slices.empty()) {
      const size_t warps = (block_->threads.size() + warpSize - 1) / warpSize;
      if (warps * bytes > launch_.shared_bytes) {
        refuse_slice("but " + std::to_string(warps) + " warps have " + std::to_string(launch_.shared_bytes) + " bytes");
      }
      while (slices.size() < warps) slices.emplace_back(bytes);
    }
    if (slices[0].bytes != bytes) refuse_slice("but before of " + std::to_string(slices[0].bytes));
    return slices[t.index.x / warpSize].begin.get();
  }
  bool is_shared(const void* address) const {
    return block_->shared.contains(address) ||
           std::any_of(block_->slices.begin(), block_->slices.end(),
                       [&](const SharedMemory& slice) { return slice.contains(address); });
  }
  void forget(void* memory, size_t bytes) {
    Forgotten& forgotten = block_->forgotten[{memory, bytes}];
    forgotten.asked.resize(block_->threads.size());
    if (++forgotten.asked[&current() - block_->threads.data()] <= forgotten.times) return;
    ++forgotten.times;
    std::memset(memory, fill_byte, bytes);
  }
  bool runs_device_code() const { return current_; }

  // Suspends the current thread until it is ready again.
  void wait(State state, const char* name, const Line& line) {
    Thread& t = current();
    t.state = state;
    t.waits_in = name;
    t.line = line;
    if (!cancelled_) suspend();
    if (cancelled_) throw Cancelled();
  }

  // Suspends the current thread with probability 1/50. A cancelled one goes on until it waits, because the compiler
  // expects no exception at an access.
  void preempt() {
    if (!cancelled_ && std::uniform_int_distribution(1, 50)(random_) == 1) suspend();
  }

 private:
  // Other threads run in the meantime.
  void suspend() {
#ifdef __SANITIZE_ADDRESS__
    void* fake;
    __sanitizer_start_switch_fiber(&fake, main_stack_, main_stack_bytes_);
#endif
    main_ = std::move(main_).resume();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, &main_stack_, &main_stack_bytes_);
#endif
  }

  void begin(Block& b, unsigned number) {
    b.number = number;
    b.threads.resize(volume(launch_.block));
    b.ready.resize(b.threads.size());
    std::iota(b.ready.begin(), b.ready.end(), size_t{0});
    for (size_t i = 0; i < b.threads.size(); ++i) {
      b.threads[i].block = unflatten(number, launch_.grid);
      b.threads[i].index = unflatten(i, launch_.block);
      b.threads[i].state = State::ready;
    }
    b.static_shared.assign(static_shared_bytes(), static_cast<char>(fill_byte));
    b.shared.fill();
    b.takes_shared = false;
    b.slices.clear();
    b.forgotten.clear();
    tell([&](Observer& o) { o.begin_block(number, b.threads.size()); });
  }

  template <class F>
  static void tell(F f) {
    if (observer) f(*observer);
  }

  // Runs a block until all its threads have ended or wait for other blocks.
  void advance(Block& b) {
    block_ = &b;
    copy_static_shared(__start_simt_shared, b.static_shared.data(), b.static_shared.size());
    while (!b.ready.empty()) {
      std::swap(b.ready[std::uniform_int_distribution<size_t>(0, b.ready.size() - 1)(random_)], b.ready.back());
      const size_t i = b.ready.back();
      b.ready.pop_back();
      resume(b.threads[i]);
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      if (b.threads[i].state == State::ready) b.ready.push_back(i);  // was preempted
      if (b.threads[i].state == State::at_collective) complete_collective(b, i);
      if (b.ready.empty()) release_barrier(b);
    }
    for (size_t i = 0; i < b.threads.size(); ++i) {
      if (b.threads[i].state != State::done && b.threads[i].state != State::at_grid_barrier) throw_deadlock(b, i);
    }
    if (launch_.cooperative) copy_static_shared(b.static_shared.data(), __start_simt_shared, b.static_shared.size());
  }

  void resume(Thread& t) {
    if (!t.fiber && !cancelled_) start(t);
    current_ = &t;
    ::threadIdx = t.index;
    ::blockIdx = t.block;
#ifdef __SANITIZE_ADDRESS__
    void* fake;
    __sanitizer_start_switch_fiber(&fake, static_cast<char*>(t.stack.sp) - t.stack.size, t.stack.size);
#endif
    t.fiber = std::move(t.fiber).resume();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    current_ = nullptr;
  }

  void start(Thread& t) {
    t.fiber = context::fiber(std::allocator_arg, PooledStack(), [this, &t](context::fiber&& main) {
#ifdef __SANITIZE_ADDRESS__
      __sanitizer_finish_switch_fiber(nullptr, &main_stack_, &main_stack_bytes_);
#endif
      main_ = std::move(main);
      try {
        body_();
      } catch (const Cancelled&) {
      } catch (...) {
        error_ = std::current_exception();
      }
      t.state = State::done;
#ifdef __SANITIZE_ADDRESS__
      __sanitizer_start_switch_fiber(nullptr, main_stack_, main_stack_bytes_);
#endif
      return std::move(main_);
    });
    t.stack = stack_pool().last();
  }

  // Ends the suspended threads, so that their stacks are unwound.
  void cancel() {
    cancelled_ = true;
    for (Block& b : blocks_) {
      for (Thread& t : b.threads) {
        if (t.fiber) resume(t);
      }
    }
  }

  void make_ready(Block& b, size_t i) {
    b.threads[i].state = State::ready;
    b.ready.push_back(i);
  }

  static const Thread* lane_of(const Block& b, size_t thread, int lane) {
    const size_t i = thread / warpSize * warpSize + lane;
    return i < b.threads.size() ? &b.threads[i] : nullptr;
  }

  // Compares pointers, because names and files are literals of the one kernel that runs.
  static bool same_place(const Thread& a, const Thread& b) {
    return a.waits_in == b.waits_in && a.line.line() == b.line.line() && a.line.file_name() == b.line.file_name();
  }

  static bool in_same_collective(const Thread& a, const Thread& b) {
    return b.state == State::at_collective && same_place(a, b) && a.mask == b.mask && a.width == b.width;
  }

  // Completes a collective if all lanes of the mask have reached it.
  void complete_collective(Block& b, size_t thread) {
    const Thread& t = b.threads[thread];
    const unsigned mask = t.mask;
    for (int lane = 0; lane < warpSize; ++lane) {
      if (!(mask >> lane & 1)) continue;
      const Thread* other = lane_of(b, thread, lane);
      if (!other || !in_same_collective(t, *other)) return;
    }
    const size_t first = thread / warpSize * warpSize;
    std::array<uint64_t, warpSize> values{};
    for (int lane = 0; lane < warpSize; ++lane) {
      if (mask >> lane & 1) values[lane] = result(b, first + lane, lane);
    }
    if (std::string_view(t.waits_in) == "__syncwarp") tell([&](Observer& o) { o.sync_warp(b.number, first, mask); });
    for (int lane = 0; lane < warpSize; ++lane) {
      if (!(mask >> lane & 1)) continue;
      b.threads[first + lane].value = values[lane];
      make_ready(b, first + lane);
    }
  }

  // The value that a lane receives (CUDA's programming guide, "Warp Shuffle Functions").
  static uint64_t result(const Block& b, size_t thread, int lane) {
    const Thread& t = b.threads[thread];
    const std::string_view name = t.waits_in;
    if (name == "__syncwarp") return 0;
    if (name == "__ballot_sync") {
      uint64_t votes = 0;
      for (int i = 0; i < warpSize; ++i) {
        if (t.mask >> i & 1) votes |= lane_of(b, thread, i)->value << i;
      }
      return votes;
    }
    const int begin = lane & ~(t.width - 1), end = begin + t.width;
    int from = lane;
    if (name == "__shfl_sync") from = begin + (t.argument & (t.width - 1));
    if (name == "__shfl_up_sync" && lane - t.argument >= begin) from = lane - t.argument;
    if (name == "__shfl_down_sync" && lane + t.argument < end) from = lane + t.argument;
    if (name == "__shfl_xor_sync" && (lane ^ t.argument) < end) from = lane ^ t.argument;
    if (!(t.mask >> from & 1)) {
      throw Error(t.name() + ": " + t.place() + " reads lane " + std::to_string(from) + ", which is not in the mask " +
                  hex(t.mask));
    }
    return lane_of(b, thread, from)->value;
  }

  // Releases the barrier if all threads that have not ended wait in the same line.
  void release_barrier(Block& b) {
    const Thread* first = nullptr;
    for (const Thread& t : b.threads) {
      if (t.state == State::done) continue;
      if (!first) first = &t;
      if (t.state != State::at_barrier || !same_place(t, *first)) return;
    }
    if (!first) return;
    tell([&](Observer& o) { o.sync_block(b.number); });
    for (size_t i = 0; i < b.threads.size(); ++i) {
      if (b.threads[i].state == State::at_barrier) make_ready(b, i);
    }
  }

  // Returns whether any blocks were waiting.
  bool release_grid_barrier() {
    const Thread *waits = nullptr, *ended = nullptr;
    for (const Block& b : blocks_) {
      for (const Thread& t : b.threads) (t.state == State::done ? ended : waits) = &t;
    }
    if (!waits) return false;
    if (ended) throw Error(waits->name() + " waits at " + waits->place() + ", but " + ended->name() + " has exited");
    tell([](Observer& o) { o.sync_grid(); });
    for (Block& b : blocks_) {
      for (size_t i = 0; i < b.threads.size(); ++i) make_ready(b, i);
    }
    return true;
  }

  // Throws an error that explains why a thread waits forever.
  [[noreturn]] static void throw_deadlock(const Block& b, size_t thread) {
    auto by_state = [&](State s) {
      return std::find_if(b.threads.begin(), b.threads.end(), [s](const Thread& t) { return t.state == s; });
    };
    if (const auto waits = by_state(State::at_collective); waits != b.threads.end()) {
      for (int lane = 0; lane < warpSize; ++lane) {
        if (!(waits->mask >> lane & 1)) continue;
        const Thread* other = lane_of(b, waits - b.threads.begin(), lane);
        if (other && in_same_collective(*waits, *other)) continue;
        const std::string start = waits->name() + ": " + waits->place() + " with mask " + hex(waits->mask) +
                                  " waits for lane " + std::to_string(lane) + ", ";
        if (!other) throw Error(start + "which the block does not have");
        if (other->state == State::done) throw Error(start + "which has exited");
        throw Error(start + "which waits at " + other->place() +
                    (other->state == State::at_collective ? " with mask " + hex(other->mask) : ""));
      }
    }
    const Thread& t = b.threads[thread];
    for (const Thread& other : b.threads) {
      if (other.state != State::done && (other.state != t.state || !same_place(other, t))) {
        throw Error(t.name() + " waits at " + t.place() + ", but " + other.name() + " at " + other.place());
      }
    }
    throw Error(t.name() + " waits forever at " + t.place());
  }

  const Launch& launch_;
  const std::function<void()>& body_;
  std::mt19937 random_;
  std::vector<Block> blocks_;
  Block* block_ = nullptr;
  Thread* current_ = nullptr;
  context::fiber main_;
  std::exception_ptr error_;
  bool cancelled_ = false;
  [[maybe_unused]] const void* main_stack_ = nullptr;
  [[maybe_unused]] size_t main_stack_bytes_ = 0;
};

Grid& grid() {
  if (!Grid::running) throw Error("device code was called outside of a launch");
  return *Grid::running;
}

uint64_t collective(const Shuffle& call, uint64_t value, int argument) {
  Thread& t = grid().current();
  const unsigned lane = (t.index.x + ::blockDim.x * (t.index.y + ::blockDim.y * t.index.z)) % warpSize;
  if (!(call.mask >> lane & 1)) {
    refuse(t, call.name, call.line,
           "with mask " + hex(call.mask) + ", which lacks its own lane " + std::to_string(lane));
  }
  if (call.width < 1 || call.width > warpSize || (call.width & (call.width - 1)) != 0) {
    refuse(t, call.name, call.line,
           "with width " + std::to_string(call.width) + ", which is not a power of two up to 32");
  }
  t.mask = call.mask;
  t.width = call.width;
  t.value = value;
  t.argument = argument;
  grid().wait(State::at_collective, call.name, call.line);
  return t.value;
}

// The kernels that were launched, as offsets in the executable.
struct LaunchedKernels {
  std::set<uintptr_t> kernels;
  ~LaunchedKernels() {
    if (const char* file = std::getenv("CPPCUDA_SIMT_KERNELS")) {
      std::ofstream out(file);
      for (const uintptr_t k : kernels) out << std::hex << k << "\n";
    }
  }
};

uintptr_t offset_of(const void* kernel) { return static_cast<const char*>(kernel) - __executable_start; }

// The file for launches, if they are written and do not run.
std::ofstream* launch_file() {
  static const char* name = std::getenv("CPPCUDA_SIMT_LAUNCHES");
  static std::ofstream file(name ? name : "", std::ios::app);
  return name ? &file : nullptr;
}

}  // namespace

void* allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) throw std::bad_alloc();
  if (!launch_file()) std::memset(memory, fill_byte, bytes);
  allocations().emplace(memory, bytes);
  allocations_made += bytes > 0;
  return memory;
}

size_t allocation_count() { return allocations_made; }

void release(void* memory) {
  allocations().erase(memory);
  std::free(memory);
}

void run(const Launch& launch, const std::function<void()>& body) {
  constexpr int orders = 3;
  ++launches_made;
  const uint64_t threads = volume(launch.block);
  if (threads < 1 || threads > 1024) throw Error("a block of " + std::to_string(threads) + " threads");
  if (volume(launch.grid) < 1 || launch.grid.x >= 1u << 31 || launch.grid.y > 65535 || launch.grid.z > 65535) {
    throw Error("a grid of " + text({launch.grid.x, launch.grid.y, launch.grid.z}) + " blocks");
  }
  if (launch.shared_bytes + static_shared_bytes() > size_t{48} << 10) {
    throw Error("a block with more than 48 KiB of shared memory");
  }
  if (Grid::running) throw Error("a launch inside of a launch");
  is_repeating = false;
  atomic_sums().clear();
  if (observer) {  // what it finds does not depend on the order
    observer->begin_launch();
    Grid(launch, body, 0).run();
    observer->end_launch();
    return;
  }
  const Snapshot before = snapshot();
  Snapshot first;
  for (int order = 0; order < orders; ++order) {
    Launch again = launch;
    // Runs with all, half and a third of the blocks.
    if (launch.grid_stride) again.grid.x = (launch.grid.x + order) / (order + 1);
    if (order > 0) restore(before);
    is_repeating = order > 0;
    Grid(again, body, order).run();
    if (order == 0) {
      first = snapshot();
      continue;
    }
    const Snapshot now = snapshot();
    auto allocation = allocations().begin();
    for (size_t i = 0; i < now.size(); ++i, ++allocation) {
      const size_t at = first_difference(static_cast<const char*>(allocation->first), now[i], first[i]);
      if (at == now[i].size()) continue;
      throw Error("the result depends on the order in which threads run" +
                  std::string(launch.grid_stride ? ", or on the number of blocks" : "") + ": byte " +
                  std::to_string(at) + " of an allocation of " + std::to_string(now[i].size()) + " bytes");
    }
  }
}

void run_block(const Launch& launch, const std::function<void()>& body, unsigned block) {
  ++launches_made;
  is_repeating = false;
  Grid(launch, body, 0).run(block);
}

int64_t resident_blocks(const void* kernel, unsigned threads, size_t shared_bytes) {
  constexpr int64_t any_kernel = 48;
  if (!launch_file()) return any_kernel;
  static std::map<std::string, int64_t> known = [] {
    std::map<std::string, int64_t> result;
    const char* name = std::getenv("CPPCUDA_SIMT_RESIDENT");
    std::ifstream file(name ? name : "");
    for (std::string question; std::getline(file, question, '=');) {
      file >> result[question] >> std::ws;
    }
    return result;
  }();
  std::ostringstream os;
  os << std::hex << offset_of(kernel) << std::dec << ' ' << threads << ' ' << shared_bytes;
  const auto found = known.find(os.str());
  if (found != known.end()) return found->second;
  *launch_file() << "? " << os.str() << std::endl;
  return any_kernel;
}

bool record(const void* kernel, const Launch& launch, const std::function<void()>& body) {
  static LaunchedKernels launched;
  const uintptr_t offset = offset_of(kernel);
  launched.kernels.insert(offset);
  if (!launch_file()) return true;
  *launch_file() << std::hex << offset << std::dec << ' ' << volume(launch.grid) << ' ' << volume(launch.block) << ' '
                 << launch.shared_bytes << ' ' << (count_reads ? count_reads(launch, body) : 0) << std::endl;
  return false;
}

void sync_threads(Line line) { grid().wait(State::at_barrier, "__syncthreads", line); }

void sync_grid(Line line) { grid().wait(State::at_grid_barrier, "grid.sync", line); }

void sync_warp(unsigned mask, Line line) { collective({"__syncwarp", mask, warpSize, line}, 0, 0); }

unsigned ballot(unsigned mask, bool predicate, Line line) {
  return static_cast<unsigned>(collective({"__ballot_sync", mask, warpSize, line}, predicate, 0));
}

uint64_t shuffle_bits(const Shuffle& call, uint64_t value, int argument) { return collective(call, value, argument); }

void check_global(const char* what, const void* address, size_t bytes, Line line) {
  auto refuse_access = [&](const std::string& why) {
    std::ostringstream os;
    os << "of " << bytes << " bytes at " << address << ", " << why;
    refuse(grid().current(), what, line, os.str());
  };
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) refuse_access("which is misaligned");
  const char* end = end_of_allocation(address);
  if (!end || static_cast<const char*>(address) + bytes > end) {
    refuse_access("which is not global memory, or extends past the end of an allocation");
  }
}

void fail(const char* where, const char* message) {
  throw Error(grid().current().name() + ": " + where + ": " + message);
}

float atomic_add(float* to, float value) {
  if (before_atomic) before_atomic(to, sizeof *to, __builtin_return_address(0));
  return add_atomically(to, value);
}

double atomic_add(double* to, double value) {
  if (before_atomic) before_atomic(to, sizeof *to, __builtin_return_address(0));
  return add_atomically(to, value);
}

void atomic_add(float* to, const float* values, int count, Line line) {
  check_global("atomicAdd", to, count * sizeof *to, line);
  if (before_atomic) before_atomic(to, count * sizeof *to, __builtin_return_address(0));
  for (int i = 0; i < count; ++i) add_atomically(to + i, values[i]);
}

void* shared_memory(Line line) { return grid().shared(line); }

void* warp_memory(size_t bytes, Line line) { return grid().slice(bytes, line); }

void forget(void* memory, size_t bytes) { grid().forget(memory, bytes); }

Memory memory_of(const void* address) {
  if (grid().is_shared(address)) return Memory::shared;
  return end_of_allocation(address) ? Memory::global : Memory::other;
}

void preempt(const void* address) {
  // The emulator's own accesses are to other memory.
  if (preempts && Grid::running && Grid::running->runs_device_code() && memory_of(address) != Memory::other) {
    Grid::running->preempt();
  }
}

uint64_t launch_number() {
  return Grid::running && Grid::running->runs_device_code() && !is_repeating ? launches_made : 0;
}

}  // namespace cppcuda::simt
