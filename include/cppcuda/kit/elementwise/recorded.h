#pragma once

// A tensor or a number (tensor_value.h) whose computation is recorded, so that the derivatives of a result with respect
// to all variables are computed from the end to the beginning, by torch's operators.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/roll.h>

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

  // The gradients of the first `count` variables, which have their sizes, from those of results. Values broadcast.
  struct Seed {
    const Recorded* result;
    TensorValue gradient;
  };
  std::vector<TensorValue> gradients(const std::vector<Seed>& seeds, size_t count) const;

 private:
  friend class Recorded;
  // A step's value depends on that of an earlier one: its derivative is `factor`, only where the mask holds, if any.
  // The value at a place of the last dim may depend on the one `rolled` places after it.
  struct Dependence {
    size_t from;
    TensorValue factor;
    std::optional<TensorValue::Mask> where = std::nullopt;
    bool holds = true;
    int64_t rolled = 0;
  };
  struct Step {
    TensorValue value;
    std::vector<Dependence> dependences;
  };
  void add(std::vector<TensorValue>& found, size_t step, const TensorValue& part, bool broadcasts) const;
  std::vector<TensorValue> from_end_to_beginning(std::vector<TensorValue> found, size_t count, bool broadcasts) const;

  std::vector<Step> steps_;
};

class Recorded : public ByPartials<Recorded, TensorValue> {
 public:
  TensorValue value;

  Recorded() = default;
  explicit Recorded(double number) : value(number) {}
  explicit Recorded(TensorValue constant) : value(std::move(constant)) {}

  static Recorded step(const TensorValue& value, const Recorded& a, const TensorValue& by_a) {
    return step(value, {{&a, {0, by_a}}});
  }
  static Recorded step(const TensorValue& value, const Recorded& a, const TensorValue& by_a, const Recorded& b,
                       const TensorValue& by_b) {
    return step(value, {{&a, {0, by_a}}, {&b, {0, by_b}}});
  }
  static Recorded either(const TensorValue::Mask& m, const Recorded& a, const Recorded& b) {
    const TensorValue one(1.0);
    return step(select(m, a.value, b.value), {{&a, {0, one, m, true}}, {&b, {0, one, m, false}}});
  }
  // `value` is that of a, rolled by n places to the beginning of the last dim.
  static Recorded rolled(const TensorValue& value, const Recorded& a, int64_t n) {
    return step(value, {{&a, {.from = 0, .factor = TensorValue(1.0), .rolled = n}}});
  }

 private:
  friend class Record;
  struct Part {
    const Recorded* of;
    Record::Dependence how;
  };
  static Recorded step(const TensorValue& value, std::initializer_list<Part> parts) {
    Recorded result(value);
    for (const auto& [of, how] : parts) {
      if (of->record_ == nullptr || how.factor.is_number(0)) continue;
      auto& steps = of->record_->steps_;
      if (result.record_ == nullptr) {
        result.record_ = of->record_;
        result.step_ = steps.size();
        steps.push_back({value, {}});
      }
      steps.back().dependences.push_back(how);
      steps.back().dependences.back().from = of->step_;
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
  steps_.push_back({value, {}});
  return result;
}

inline void Record::add(std::vector<TensorValue>& found, size_t step, const TensorValue& part, bool broadcasts) const {
  const at::Tensor *const gradient = part.tensor(), *const value = steps_[step].value.tensor();
  if (!broadcasts || gradient == nullptr || value == nullptr) {
    found[step] = found[step] + part;
  } else {  // a value that broadcasts gets the sum of the gradients
    const auto sizes = at::infer_size_symdimvector(gradient->sym_sizes(), value->sym_sizes());
    found[step] = found[step] + TensorValue(at::sum_to(gradient->expand_symint(sizes), value->sym_sizes()));
  }
}

inline std::vector<TensorValue> Record::from_end_to_beginning(std::vector<TensorValue> found, size_t count,
                                                              bool broadcasts) const {
  for (size_t s = steps_.size(); s-- > count;) {
    if (found[s].is_number(0)) continue;
    for (const auto& [from, factor, where, holds, rolled] : steps_[s].dependences) {
      TensorValue part = found[s] * factor;
      if (where) part = holds ? select(*where, part, TensorValue(0.0)) : select(*where, TensorValue(0.0), part);
      if (rolled != 0 && part.tensor() != nullptr) part = TensorValue(part.tensor()->roll(rolled, -1));
      add(found, from, part, broadcasts);
    }
  }
  found.resize(count, TensorValue(0.0));
  return found;
}

inline std::vector<TensorValue> Record::derivatives(const Recorded& result, size_t count) const {
  std::vector<TensorValue> found(steps_.size(), TensorValue(0.0));
  if (result.record_ != nullptr) found[result.step_] = TensorValue(1.0);
  return from_end_to_beginning(std::move(found), count, /*broadcasts=*/false);
}

inline std::vector<TensorValue> Record::gradients(const std::vector<Seed>& seeds, size_t count) const {
  std::vector<TensorValue> found(steps_.size(), TensorValue(0.0));
  for (const auto& [result, gradient] : seeds) {
    if (result->record_ != nullptr) add(found, result->step_, gradient, /*broadcasts=*/true);
  }
  return from_end_to_beginning(std::move(found), count, /*broadcasts=*/true);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
