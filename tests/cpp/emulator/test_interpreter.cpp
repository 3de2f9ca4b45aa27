// Tests of the interpreter alone, with PTX written by hand.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "emulator.h"
#include "ptx.h"

namespace {

namespace emulator = cppcuda::emulator;

constexpr char head[] = ".version 8.0\n.target sm_90\n.address_size 64\n";

// Runs `body` in each thread. %in and %out are the threads' addresses of 16 bytes each, %r0 the thread, %out0 and %in0
// the beginnings.
struct Program {
  unsigned threads = 32, blocks = 1;
  size_t shared = 0;
  std::vector<uint64_t> in = std::vector<uint64_t>(2048, 0);
  std::string what = {};  // the error

  template <class T>
  void set(int thread, T value, int at = 0) {
    std::memcpy(reinterpret_cast<char*>(in.data()) + thread * 16 + at, &value, sizeof value);
  }

  std::vector<uint64_t> operator()(const std::string& body, const std::string& module = "") {
    emulator::Module m(std::string(head) + module + R"(
.visible .entry k(.param .u64 k_0, .param .u64 k_1)
{
.reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<20>; .reg .f32 %f<10>; .reg .b64 %rd<20>; .reg .f64 %fd<10>;
.reg .b64 %in, %out, %in0, %out0, %t;
ld.param.u64 %in0, [k_0];
ld.param.u64 %out0, [k_1];
mov.u32 %r0, %tid.x;
mul.wide.u32 %t, %r0, 16;
add.s64 %in, %in0, %t;
add.s64 %out, %out0, %t;
)" + body + "\nret;\n}\n");
    const size_t bytes = size_t{16} * threads;
    auto* from = static_cast<char*>(emulator::allocate(bytes));
    auto* to = static_cast<char*>(emulator::allocate(bytes));
    std::memcpy(from, in.data(), bytes);
    std::memset(to, 0, bytes);
    void* arguments[] = {&from, &to};
    what.clear();
    try {
      emulator::run(*m.find("k"), {{blocks, 1, 1}, {threads, 1, 1}, shared, false}, arguments);
    } catch (const std::exception& e) {
      what = e.what();
    }
    std::vector<uint64_t> result(2 * threads);
    std::memcpy(result.data(), to, bytes);
    emulator::release(from);
    emulator::release(to);
    return result;
  }

  // The first 8 bytes that thread 0 stores.
  uint64_t first(const std::string& body) {
    const auto r = (*this)(body);
    EXPECT_EQ(what, "") << body;
    return r[0];
  }
};

float as_float(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double as_double(uint64_t bits) { return std::bit_cast<double>(bits); }

// A float instruction with up to three operands.
float f32(const std::string& instruction, float a, float b = 0, float c = 0) {
  Program run;
  run.set(0, a, 0);
  run.set(0, b, 4);
  run.set(0, c, 8);
  return as_float(run.first("ld.global.f32 %f1, [%in]; ld.global.f32 %f2, [%in+4]; ld.global.f32 %f3, [%in+8];\n" +
                            instruction + ";\nst.global.f32 [%out], %f0;"));
}

uint64_t u64(const std::string& instructions, uint64_t a, uint64_t b = 0) {
  Program run;
  run.set(0, a, 0);
  run.set(0, b, 8);
  return run.first(
      "ld.global.u64 %rd1, [%in]; ld.global.u64 %rd2, [%in+8]; ld.global.u32 %r1, [%in]; ld.global.u32 %r2, "
      "[%in+8];\n" +
      instructions + "\nst.global.u64 [%out], %rd0;");
}

TEST(Float, Rounding) {
  const float third = 1.0f / 3;
  EXPECT_EQ(f32("fma.rn.f32 %f0, %f1, %f2, %f3", third, 3, -1), std::fma(third, 3.0f, -1.0f));
  EXPECT_EQ(f32("add.rm.f32 %f0, %f1, %f2", 1, 1e-10f), 1);
  EXPECT_EQ(f32("add.rp.f32 %f0, %f1, %f2", 1, 1e-10f), std::nextafterf(1, 2));
  EXPECT_EQ(f32("add.rz.f32 %f0, %f1, %f2", -1, -1e-10f), -1);
  EXPECT_EQ(f32("fma.rm.f32 %f0, %f1, %f2, %f3", -1e-10f, 1, -1), std::nextafterf(-1, -2));
  EXPECT_EQ(f32("rcp.rn.f32 %f0, %f1", 3), third);
  EXPECT_EQ(f32("div.rn.f32 %f0, %f1, %f2", 1, 3), third);
  EXPECT_EQ(f32("sub.f32 %f0, %f1, %f2", 1, 3), -2);
  EXPECT_EQ(f32("sqrt.rn.f32 %f0, %f1", 2), std::sqrt(2.0f));
}

TEST(Float, SubnormalsAndNaN) {
  EXPECT_EQ(f32("mul.f32 %f0, %f1, %f2", 1e-20f, 1e-20f), 1e-20f * 1e-20f);
  EXPECT_EQ(f32("mul.ftz.f32 %f0, %f1, %f2", 1e-20f, 1e-20f), 0);
  EXPECT_EQ(f32("add.ftz.f32 %f0, %f1, %f2", 1e-40f, 0), 0);
  EXPECT_TRUE(std::isnan(f32("add.f32 %f0, %f1, %f2", INFINITY, -INFINITY)));
  EXPECT_EQ(f32("min.f32 %f0, %f1, %f2", NAN, 2), 2);
  EXPECT_EQ(f32("abs.f32 %f0, %f1", -2), 2);
  EXPECT_EQ(f32("neg.f32 %f0, %f1", 2), -2);
  EXPECT_EQ(f32("copysign.f32 %f0, %f1, %f2", -1, 3), -3);
  EXPECT_EQ(f32("cvt.sat.f32.f32 %f0, %f1", 3), 1);
  EXPECT_EQ(f32("cvt.sat.f32.f32 %f0, %f1", NAN), 0);
  EXPECT_EQ(f32("cvt.rmi.f32.f32 %f0, %f1", -1.5f), -2);
  EXPECT_EQ(f32("cvt.rni.f32.f32 %f0, %f1", 2.5f), 2);
  EXPECT_EQ(f32("add.sat.f32 %f0, %f1, %f2", 3, 4), 1);
}

TEST(Float, Approximations) {
  for (const float x : {-100.5f, -3.25f, 0.1f, 1.7f, 20.0f, 126.9f}) {
    EXPECT_NEAR(f32("ex2.approx.ftz.f32 %f0, %f1", x) / std::exp2(static_cast<double>(x)), 1, 0x1p-22 * 1.3);
    EXPECT_NEAR(f32("rcp.approx.ftz.f32 %f0, %f1", x) * static_cast<double>(x), 1, 0x1p-23 * 1.6);
  }
  EXPECT_EQ(f32("ex2.approx.ftz.f32 %f0, %f1", -INFINITY), 0);
  EXPECT_EQ(f32("ex2.approx.ftz.f32 %f0, %f1", 200), INFINITY);
  EXPECT_EQ(f32("ex2.approx.ftz.f32 %f0, %f1", -126.5f), 0);
  EXPECT_EQ(f32("rcp.approx.ftz.f32 %f0, %f1", 0), INFINITY);
  EXPECT_EQ(f32("rcp.approx.ftz.f32 %f0, %f1", INFINITY), 0);
}

TEST(Convert, FloatToInteger) {
  const auto to = [](const std::string& type, float x) {
    Program run;
    run.set(0, x);
    return run.first("ld.global.f32 %f1, [%in]; cvt.rzi." + type + ".f32 %r1, %f1; st.global.u32 [%out], %r1;");
  };
  EXPECT_EQ(to("s32", -2.7f), static_cast<uint32_t>(-2));
  EXPECT_EQ(to("s32", 3e9f), 0x7fffffffu);
  EXPECT_EQ(to("s32", -3e9f), 0x80000000u);
  EXPECT_EQ(to("s32", NAN), 0u);
  EXPECT_EQ(to("u32", -1), 0u);
  EXPECT_EQ(to("u32", 3e9f), 3000000000u);
}

TEST(Convert, SixteenBits) {
  const auto through = [](const std::string& type, float x) {
    Program run;
    run.set(0, x);
    return run.first("ld.global.f32 %f1, [%in]; cvt.rn." + type + ".f32 %h1, %f1; st.global.u16 [%out], %h1;");
  };
  EXPECT_EQ(through("f16", 1), 0x3c00u);
  EXPECT_EQ(through("f16", 65520), 0x7c00u);
  EXPECT_EQ(through("f16", 6e-8f), 1u);
  EXPECT_EQ(through("f16", NAN), 0x7fffu);
  EXPECT_EQ(through("bf16", 1), 0x3f80u);
  EXPECT_EQ(through("bf16", 1.00390625f), 0x3f80u);  // a tie goes to even
  EXPECT_EQ(through("bf16", 1.01171875f), 0x3f82u);
  EXPECT_EQ(through("bf16", NAN), 0x7fffu);
  Program run;
  run.set<uint32_t>(0, 0x3f80c000u);
  EXPECT_EQ(
      run.first("ld.global.b32 %r1, [%in]; mov.b32 {%h1, %h2}, %r1; cvt.f32.bf16 %f1, %h2; cvt.f32.f16 %f2, %h1;\n"
                "st.global.v2.f32 [%out], {%f1, %f2};"),
      uint64_t{std::bit_cast<uint32_t>(-2.0f)} << 32 | std::bit_cast<uint32_t>(1.0f));
  run.set(0, 1.5f, 0);
  run.set(0, -2.0f, 4);
  EXPECT_EQ(run.first("ld.global.v2.f32 {%f1, %f2}, [%in]; cvt.rn.f16x2.f32 %r1, %f1, %f2; st.global.b32 [%out], %r1;"),
            0x3e00c000u);
}

TEST(Integer, Arithmetic) {
  EXPECT_EQ(u64("mul.hi.u64 %rd0, %rd1, %rd2;", ~uint64_t{0}, 16), 15u);
  EXPECT_EQ(u64("mul.wide.s32 %rd0, %r1, %r2;", static_cast<uint32_t>(-3), 5), static_cast<uint64_t>(-15));
  EXPECT_EQ(u64("mul.wide.u32 %rd0, %r1, %r2;", 0xffffffff, 0xffffffff), 0xfffffffe00000001u);
  EXPECT_EQ(u64("mad.lo.s64 %rd0, %rd1, %rd2, 7;", 3, 5), 22u);
  EXPECT_EQ(u64("shl.b64 %rd0, %rd1, 64;", 3), 0u);
  EXPECT_EQ(u64("shr.s64 %rd0, %rd1, 100;", static_cast<uint64_t>(-3)), ~uint64_t{0});
  EXPECT_EQ(u64("div.s64 %rd0, %rd1, %rd2;", static_cast<uint64_t>(-7), 2), static_cast<uint64_t>(-3));
  EXPECT_EQ(u64("rem.u32 %r3, %r1, %r2; cvt.u64.u32 %rd0, %r3;", 17, 5), 2u);
  EXPECT_EQ(u64("add.cc.s64 %rd3, %rd1, %rd2; addc.s64 %rd0, 0, 0;", ~uint64_t{0}, 1), 1u);
  EXPECT_EQ(u64("cvt.s64.s32 %rd0, %r1;", 0x80000000), 0xffffffff80000000u);
  EXPECT_EQ(u64("cvt.u64.u32 %rd0, %r1;", 0x80000000), 0x80000000u);
  EXPECT_EQ(u64("cvt.s64.s8 %rd0, %rd1;", 0x180), 0xffffffffffffff80u);
  EXPECT_EQ(u64("bfe.u32 %r3, %r1, 4, 8; cvt.u64.u32 %rd0, %r3;", 0x12345), 0x34u);
  EXPECT_EQ(u64("prmt.b32 %r3, %r1, %r2, 0x5410; cvt.u64.u32 %rd0, %r3;", 0x44332211, 0x88776655), 0x66552211u);
  EXPECT_EQ(u64("lop3.b32 %r3, %r1, %r2, 15, 0xe8; cvt.u64.u32 %rd0, %r3;", 12, 10),
            (12u & 10u) | (12u & 15u) | (10u & 15u));
  EXPECT_EQ(u64("bmsk.clamp.b32 %r3, %r1, %r2; cvt.u64.u32 %rd0, %r3;", 4, 8), 0xff0u);
  EXPECT_EQ(u64("bmsk.clamp.b32 %r3, %r1, %r2; cvt.u64.u32 %rd0, %r3;", 28, 8), 0xf0000000u);
  EXPECT_EQ(u64("bmsk.clamp.b32 %r3, %r1, %r2; cvt.u64.u32 %rd0, %r3;", 32, 8), 0u);
  EXPECT_EQ(u64("clz.b32 %r3, %r1; cvt.u64.u32 %rd0, %r3;", 1), 31u);
  EXPECT_EQ(u64("max.s32 %r3, %r1, %r2; cvt.u64.u32 %rd0, %r3;", static_cast<uint32_t>(-3), 1), 1u);
  EXPECT_EQ(u64("max.u32 %r3, %r1, %r2; cvt.u64.u32 %rd0, %r3;", static_cast<uint32_t>(-3), 1), 0xfffffffdu);
  EXPECT_EQ(u64("setp.lt.s64 %p1, %rd1, %rd2; selp.u64 %rd0, 1, 2, %p1;", static_cast<uint64_t>(-3), 1), 1u);
  EXPECT_EQ(u64("setp.lt.u64 %p1, %rd1, %rd2; selp.u64 %rd0, 1, 2, %p1;", static_cast<uint64_t>(-3), 1), 2u);
  EXPECT_EQ(u64("setp.ne.s32 %p2, 1, 1; setp.eq.and.s32 %p1|%p3, %r1, %r2, !%p2; selp.u64 %rd0, 1, 2, %p1;", 4, 4), 1u);
}

TEST(Float, ComparisonsWithNaN) {
  const auto compare = [](const std::string& c, float a, float b) {
    return f32("setp." + c + ".f32 %p1, %f1, %f2; selp.f32 %f0, 0f3F800000, 0f00000000, %p1", a, b) == 1;
  };
  for (const char* c : {"lt", "le", "gt", "ge", "eq", "ne"}) EXPECT_FALSE(compare(c, NAN, 1)) << c;
  for (const char* c : {"ltu", "leu", "gtu", "geu", "equ", "neu"}) EXPECT_TRUE(compare(c, NAN, 1)) << c;
  EXPECT_TRUE(compare("geu", 2, 1));
  EXPECT_FALSE(compare("geu", 1, 2));
}

TEST(Double, Arithmetic) {
  Program run;
  run.set(0, 1.0 / 3);
  EXPECT_EQ(
      as_double(run.first("ld.global.f64 %fd1, [%in]; fma.rn.f64 %fd2, %fd1, 0d4008000000000000, 0dBFF0000000000000; "
                          "st.global.f64 [%out], %fd2;")),
      std::fma(1.0 / 3, 3.0, -1.0));
}

TEST(Warp, DivergedLanesMeetAgain) {
  Program run;
  // Odd lanes loop as often as their number says; then all add up.
  const auto r = run(R"(
    and.b32 %r1, %r0, 1;
    setp.eq.s32 %p1, %r1, 0;
    mov.u32 %r2, 0;
    @%p1 bra JOIN;
    mov.u32 %r3, %r0;
LOOP:
    add.s32 %r2, %r2, 2;
    sub.s32 %r3, %r3, 1;
    setp.ne.s32 %p2, %r3, 0;
    @%p2 bra LOOP;
JOIN:
    shfl.sync.bfly.b32 %r4|%p3, %r2, 1, 31, -1;
    add.s32 %r5, %r2, %r4;
    cvt.u64.u32 %rd1, %r5;
    st.global.u64 [%out], %rd1;)");
  EXPECT_EQ(run.what, "");
  for (unsigned l = 0; l < 32; ++l) EXPECT_EQ(r[2 * l], 2 * (l | 1));
}

TEST(Warp, GroupsWithMasksOfTheirOwn) {
  Program run;
  // Groups of four lanes: their mask, and a loop whose length differs between groups.
  const auto r = run(R"(
    shr.u32 %r1, %r0, 2;
    shl.b32 %r2, %r1, 2;
    shl.b32 %r3, 15, %r2;
    mov.u32 %r4, %r0;
    add.s32 %r5, %r1, 1;
LOOP:
    shfl.sync.bfly.b32 %r6, %r4, 1, 31, %r3;
    add.s32 %r4, %r4, %r6;
    sub.s32 %r5, %r5, 1;
    setp.gt.s32 %p1, %r5, 0;
    @%p1 bra LOOP;
    cvt.u64.u32 %rd1, %r4;
    st.global.u64 [%out], %rd1;)");
  EXPECT_EQ(run.what, "");
  for (unsigned l = 0; l < 32; ++l) EXPECT_EQ(r[2 * l], uint64_t{(l | 1) + (l & ~1u)} << (l / 4));
}

TEST(Block, BarriersAndSharedMemory) {
  Program run{.threads = 96, .shared = 4 * 96};
  const auto r = run(R"(
    mov.u32 %r1, memory;
    shl.b32 %r2, %r0, 2;
    add.s32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %r0;
    bar.sync 0;
    mov.u32 %r4, 380;
    sub.s32 %r4, %r4, %r2;
    add.s32 %r4, %r1, %r4;
    ld.shared.u32 %r5, [%r4];
    cvt.u64.u32 %rd1, %r5;
    st.global.u64 [%out], %rd1;)",
                     ".extern .shared .align 16 .b8 memory[];\n");
  EXPECT_EQ(run.what, "");
  for (unsigned t = 0; t < 96; ++t) EXPECT_EQ(r[2 * t], 95 - t);
}

TEST(Block, BarriersThatReduce) {
  const auto reduced = [](const std::string& instructions) {
    Program run{.threads = 96};
    const auto r = run("setp.eq.s32 %p1, %r0, 77; setp.lt.s32 %p2, %r0, 96;" + instructions +
                       "cvt.u64.u32 %rd1, %r1; st.global.u64 [%out], %rd1;");
    EXPECT_EQ(run.what, "");
    for (unsigned t = 1; t < 96; ++t) EXPECT_EQ(r[2 * t], r[0]);
    return r[0];
  };
  EXPECT_EQ(reduced("bar.red.popc.u32 %r1, 0, %p1;"), 1u);
  EXPECT_EQ(reduced("bar.red.popc.u32 %r1, 0, !%p1;"), 95u);
  EXPECT_EQ(reduced("bar.red.popc.u32 %r1, 0, 96, %p2;"), 96u);
  EXPECT_EQ(reduced("bar.red.or.pred %p3, 0, %p1; selp.u32 %r1, 1, 0, %p3;"), 1u);
  EXPECT_EQ(reduced("bar.red.and.pred %p3, 0, %p1; selp.u32 %r1, 1, 0, %p3;"), 0u);
  EXPECT_EQ(reduced("bar.red.and.pred %p3, 0, %p2; selp.u32 %r1, 1, 0, %p3;"), 1u);
}

TEST(Grid, BlocksThatWaitForOthers) {
  Program run{.blocks = 3};
  // The last block lets the others go on.
  run(R"(
    mov.u32 %r1, %ctaid.x;
    setp.ne.s32 %p1, %r1, 2;
    @%p1 bra WAIT;
    mov.u32 %r2, 1;
    st.global.u32 [%out0+256], %r2;
    ret;
WAIT:
    ld.volatile.global.u32 %r3, [%out0+256];
    setp.eq.s32 %p2, %r3, 0;
    @%p2 bra WAIT;)");
  EXPECT_EQ(run.what, "");
}

TEST(Atomics, AllLanesAdd) {
  Program run{.threads = 64};
  const auto r = run(R"(
    mov.f32 %f1, 0f3F800000;
    atom.global.add.f32 %f2, [%out0], %f1;
    red.global.add.f64 [%out0+8], 0d3FF0000000000000;)");
  EXPECT_EQ(run.what, "");
  EXPECT_EQ(as_float(r[0]), 64);
  EXPECT_EQ(as_double(r[1]), 64);
}

std::string error(const std::string& body, unsigned threads = 32) {
  Program run{.threads = threads, .shared = 64};
  run(body, ".extern .shared .align 16 .b8 memory[];\n");
  return run.what;
}

TEST(Errors, AreFound) {
  const auto contains = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  contains(error("ld.global.u32 %r1, [%in+2];"), "misaligned");
  contains(error("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%in+8];"), "misaligned");
  contains(error("ld.global.u32 %r1, [%in0+512];"), "out of bounds");
  contains(error("st.global.u32 [%out0+-4], %r0;"), "out of bounds");
  contains(error("ld.shared.u32 %r1, [memory+64];"), "out of bounds");
  contains(error("ld.global.u32 %r1, [%rd5];"), "undefined");
  contains(error("@%p5 add.s32 %r1, %r0, 1;"), "undefined");
  contains(error("ld.shared.u64 %rd1, [memory]; ld.global.u32 %r1, [%rd1];"), "undefined");
  contains(error("shfl.sync.bfly.b32 %r1, %r0, 1, 31, 1;"), "the mask 0x1 lacks its own lane 1");
  contains(error("setp.eq.s32 %p1, %r0, 5; @%p1 bra END; bar.warp.sync -1; bar.warp.sync -1; bra DONE;\nEND: "
                 "bar.warp.sync -1;\nDONE:"),
           "for lane 5, which waits at bar.warp.sync -1");
  contains(error("setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0; bar.sync 1;", 64),
           "different barriers: thread (0, 0, 0) of block (0, 0, 0) at @%p1 bar.sync 0, thread (32");
  contains(error("setp.lt.u32 %p1, %r0, 5; shfl.sync.idx.b32 %r1, %r0, 7, 31, 31;"),
           "the mask 0x1f lacks its own lane 5");
  contains(error("mov.b32 %r1, {%h1, %h2}; shr.u32 %r2, %r1, 16; setp.eq.s32 %p1, %r2, 0; @%p1 bra END; END:"),
           "undefined");
  EXPECT_EQ(
      error("mov.u16 %h1, 5; mov.b32 %r1, {%h1, %h2}; shl.b32 %r2, %r1, 16; and.b32 %r3, %r1, 65535;\n"
            "mov.b32 {%h3, %h4}, %r1; setp.eq.s32 %p1, %r2, 0; @%p1 bra END; setp.eq.s32 %p1, %r3, 0; @%p1 bra END;\n"
            "setp.eq.s16 %p1, %h3, 0; @%p1 bra END; END:"),
      "");
  contains(error("foo.b32 %r1, %r0;"), "unknown instruction: foo.b32");
  contains(error("add.s16 %r9, %nonsense, 1;"), "unknown register");
  contains(error("trap;"), "trap");
}

}  // namespace
