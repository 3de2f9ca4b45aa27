#pragma once

// A tensor or a number (tensor_value.h) whose computation is recorded, so that the derivatives of a result with respect
// to all variables are computed from the end to the beginning, by torch's operators.

#include <optional>
#include <vector>

#include "cppcuda/kit/elementwise/tensor_value.h"
#include "cppcuda/kit/math/partials.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

class Recorded;

class Record {
 public:
  // Variables come before all other steps, and are numbered from 0.
  Recorded variable(const TensorValue& value);

  // The derivatives of the result with respect to the first `count` variables.
  std::vector<TensorValue> derivatives(const Recorded& result, size_t count) const;

 private:
  friend class Recorded;
  // A step's value depends on that of an earlier one: its derivative is `factor`, only where the mask holds, if any.
  struct Dependence {
    size_t from;
    TensorValue factor;
    std::optional<TensorValue::Mask> where;
    bool holds;
  };
  std::vector<std::vector<Dependence>> steps_;
};

class Recorded : public ByPartials<Recorded, TensorValue> {
 public:
  TensorValue value;

  Recorded() = default;
  explicit Recorded(double number) : value(number) {}
  explicit Recorded(TensorValue constant) : value(std::move(constant)) {}

  static Recorded step(const TensorValue& value, const Recorded& a, const TensorValue& by_a) {
    return step(value, {{&a, by_a, {}, true}});
  }
  static Recorded step(const TensorValue& value, const Recorded& a, const TensorValue& by_a, const Recorded& b,
                       const TensorValue& by_b) {
    return step(value, {{&a, by_a, {}, true}, {&b, by_b, {}, true}});
  }
  static Recorded either(const TensorValue::Mask& m, const Recorded& a, const Recorded& b) {
    const TensorValue one(1.0);
    return step(select(m, a.value, b.value), {{&a, one, m, true}, {&b, one, m, false}});
  }

 private:
  friend class Record;
  struct Part {
    const Recorded* of;
    TensorValue factor;
    std::optional<TensorValue::Mask> where;
    bool holds;
  };
  static Recorded step(const TensorValue& value, std::initializer_list<Part> parts) {
    Recorded result(value);
    for (const auto& [of, factor, where, holds] : parts) {
      if (of->record_ == nullptr || factor.is_number(0)) continue;
      auto& steps = of->record_->steps_;
      if (result.record_ == nullptr) {
        result.record_ = of->record_;
        result.step_ = steps.size();
        steps.emplace_back();
      }
      steps.back().push_back({of->step_, factor, where, holds});
    }
    return result;
  }

  Record* record_ = nullptr;  // null for a constant
  size_t step_ = 0;
};

inline Recorded Record::variable(const TensorValue& value) {
  Recorded result(value);
  result.record_ = this;
  result.step_ = steps_.size();
  steps_.emplace_back();
  return result;
}

inline std::vector<TensorValue> Record::derivatives(const Recorded& result, size_t count) const {
  std::vector<TensorValue> found(std::max(steps_.size(), count), TensorValue(0.0));
  if (result.record_ == nullptr) return {found.begin(), found.begin() + static_cast<int64_t>(count)};
  found[result.step_] = TensorValue(1.0);
  for (size_t s = result.step_ + 1; s-- > count;) {
    if (found[s].is_number(0)) continue;
    for (const auto& [from, factor, where, holds] : steps_[s]) {
      TensorValue part = found[s] * factor;
      if (where) part = holds ? select(*where, part, TensorValue(0.0)) : select(*where, TensorValue(0.0), part);
      found[from] = found[from] + part;
    }
  }
  found.resize(count, TensorValue(0.0));
  return found;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
