// In C++ torch's generator starts with another seed in each process. Here every test starts with the same one.

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace {

class Seed : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& /*info*/) override { at::manual_seed(0); }
};

[[maybe_unused]] const bool added = (::testing::UnitTest::GetInstance()->listeners().Append(new Seed), true);

}  // namespace
