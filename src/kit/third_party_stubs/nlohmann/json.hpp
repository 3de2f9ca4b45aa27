#pragma once

// ATen/functorch/Interpreter.h uses nlohmann::json, which torch does not ship, in two functions that serialise an
// interpreter. Neither is called here; this stub is enough to compile the header.

#include <string>

namespace nlohmann {

struct json {
  json() = default;
  template <class T>
  explicit json(const T&) {}
  std::string dump() const { return {}; }
  static json parse(const std::string&) { return {}; }
  template <class T>
  T get() const;
};

}  // namespace nlohmann
