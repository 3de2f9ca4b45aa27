#pragma once

// The declaration of an operator: torch's schema with a size pattern (pattern.h) after each tensor.
//
//   "cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor points[B?, N, 3]) -> Tensor[B?, N, F]"
//
// All tensors, outputs too, have the dtype and the device of the first tensor that is not optional: float64, float32,
// float16 or bfloat16. "Tensor cy[B, S] like cx" has the dtype of cx instead. The output "Tensor grad(points)" is the
// gradient of points and has no name in torch's schema. If points is an argument, the gradient has its pattern and
// dtype, unless another pattern is given.
// "Tensor corners[N, 8] int32 or int64" has one of these dtypes, whatever the others have, and so has "Tensor mask[N]
// bool"; "Tensor values[N] any" has any of dtype_names. Only floating-point and complex tensors have gradients. An
// output has one dtype: "Tensor corners[N, 8] int64". "Tensor rstd[N] opmath" has torch's opmath dtype: float32 if the
// others have 16 bits. "Tensor points[N, 3] keep_wide" may be float32 if the others have 16 bits. Autocast casts it
// from 16 bits to float32, whatever the operator's CastPolicy is; tensors that are like it have its dtype.
// "SymInt[2] size[H, W]", "SymInt rows[N]" and "int levels[L]" give the sizes of letters. attribute_types lists the
// types of arguments that are no tensors.
// "Tensor(a!) cache[V, F]" or "Tensor! cache[V, F]" is an argument that the operator writes to, "Tensor(b!)? counts[V]"
// another one, which may be missing. "Tensor[] xs[_, F]" is a list of tensors. "hidden Tensor rstd[N]" is an output
// that only gradients read. The operator does not return it. With it, there is an internal operator, whose name has an
// underscore before it, Op::WithHidden; hidden outputs come last. docs/declarations.md lists everything.
//
// Declarations are parsed at compile time. An invalid one does not compile, and the first error of the compiler says
// what is wrong: "incomplete type 'DeclarationWith<Mistake{"Tensr is an unknown type; ..."}>'". This header includes
// nothing of torch.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "cppcuda/kit/autocast.h"
#include "cppcuda/kit/pattern.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <size_t N>
struct FixedString {
  char value[N];
  consteval FixedString(const char (&text)[N]) { std::copy_n(text, N, value); }
  constexpr std::string_view view() const { return {value, N - 1}; }
};

enum class Kind {
  tensor,
  optional_tensor,
  tensors,           // Tensor[]
  optional_tensors,  // Tensor?[], of which each may be missing
  maybe_tensors,     // Tensor[]?, which may be missing
  sizes,             // SymInt[N] with or without a pattern
  integer,           // int
  symbolic,          // SymInt
  mask,              // bool[N] output_mask
  attribute,         // another one of attribute_types
};

// The types of arguments that are no tensors. A list may have a length, as in int[3]. op.h has their types in C++.
inline constexpr std::string_view attribute_types[] = {
    "str",         "str?",    "str[]",    "int",       "int?",          "int[]",     "int[]?",
    "SymInt",      "SymInt?", "SymInt[]", "SymInt[]?", "float",         "float?",    "float[]",
    "float[]?",    "bool",    "bool?",    "bool[]",    "Scalar",        "Scalar?",   "ScalarType",
    "ScalarType?", "Device",  "Device?",  "Layout?",   "MemoryFormat?", "Generator?"};

// The dtypes that tensors may have.
inline constexpr std::string_view dtype_names[] = {"float64",    "float32", "float16",       "bfloat16",   "complex64",
                                                   "complex128", "bool",    "uint8",         "int8",       "int16",
                                                   "int32",      "int64",   "float8_e4m3fn", "float8_e5m2"};
inline constexpr size_t differentiable_dtypes = 6;  // the first ones

// A bit for each of dtype_names.
using Dtypes = uint16_t;
inline constexpr Dtypes any_dtype = (1U << std::size(dtype_names)) - 1;
inline constexpr Dtypes floating_dtypes = 15;  // those of tensors whose declaration names none
inline constexpr Dtypes index_dtypes = 3 << 10;

constexpr bool is_tensor(Kind kind) { return kind == Kind::tensor || kind == Kind::optional_tensor; }
constexpr bool is_tensor_list(Kind kind) {
  return kind == Kind::tensors || kind == Kind::optional_tensors || kind == Kind::maybe_tensors;
}
constexpr bool takes_tensors(Kind kind) { return is_tensor(kind) || is_tensor_list(kind); }
constexpr bool gives_sizes(Kind kind) { return kind == Kind::sizes || kind == Kind::integer || kind == Kind::symbolic; }

// An argument or an output, which torch calls an argument too (c10::Argument).
struct Argument {
  std::string_view type, name, value;  // the default value; empty if there is none
  Kind kind = Kind::tensor;
  Pattern pattern;
  std::string_view like_name;
  std::string_view dtype_text;  // "int32 or int64"
  std::string_view suffix;      // of the type, "?" or "[]", if it is that of tensors
  size_t like = 0;              // the argument whose dtype this tensor has
  size_t length = 0;            // of a mask
  size_t attribute = 0;         // of an argument that is no tensor: its place in attribute_types
  Dtypes dtypes = 0;            // if the declaration names them; then this tensor is like no other
  Dtypes allowed = 0;           // of an argument: the dtypes that it may have, whatever the others have
  bool is_opmath = false;       // has the dtype in which `like` is computed
  bool is_gradient = false;     // an output that is the gradient of the tensor `name`
  bool keeps_wide = false;      // may be float32 if `like` has 16 bits
  bool is_written = false;      // an argument that the operator writes to

  constexpr bool has_own_dtype() const { return is_opmath || keeps_wide || dtypes != 0; }
};

// A list that is filled at compile time.
template <class T, size_t N>
struct FixedList {
  std::array<T, N> items{};
  size_t count = 0;

  constexpr void push_back(const T& item) { items[count++] = item; }
  constexpr size_t size() const { return count; }
  constexpr auto begin() const { return items.begin(); }
  constexpr auto end() const { return items.begin() + count; }
  constexpr auto begin() { return items.begin(); }
  constexpr auto end() { return items.begin() + count; }
  constexpr const T& operator[](size_t i) const { return items[i]; }
  constexpr T& operator[](size_t i) { return items[i]; }
};

inline constexpr size_t max_arguments = 48, max_outputs = 16;

struct Declaration {
  struct Requirement {
    size_t output = 0, argument = 0;  // the output, if requested, reads this optional argument
  };

  std::string_view name;  // with its namespace
  FixedList<Argument, max_arguments> arguments;
  FixedList<Argument, max_outputs> outputs;
  FixedList<Requirement, max_arguments> requirements;
  Mistake mistake;  // of the text; the rest is then incomplete
  CastPolicy under_autocast = CastPolicy::promote;
  unsigned independent = 0;             // a bit for each letter that Independent names
  char rows = 0;                        // the first of them
  size_t keyword_only = max_arguments;  // the arguments from this one on
  // The first tensor that is not optional and whose dtype the declaration does not name; if there is none, the first
  // one that is not optional. The number of arguments if there is none.
  size_t first = 0;
  // Whether the kit allocates what the operator returns: tensors, whose kernel writes to nothing else and takes no
  // lists.
  bool allocates = false;
  bool finds_sizes = false;                   // whether the kernel finds sizes of outputs
  bool takes_lists = false;                   // whether an argument is a list of tensors
  bool has_variants = false;                  // Variants
  size_t strides_of = max_arguments;          // the argument that StridesOf names
  size_t config_first = 0, config_count = 0;  // the arguments that are the members of an aggregate (Config)
  FixedList<size_t, max_arguments> by_need;   // the tensors, required ones before optional ones
  // Integers, tensors and lists of sizes with a pattern, each after those that bind the letters it needs.
  FixedList<size_t, max_arguments> by_shape;

  // The number of arguments if there is none with this name.
  constexpr size_t find_argument(std::string_view wanted) const {
    const auto at = std::find_if(arguments.begin(), arguments.end(), [&](const auto& a) { return a.name == wanted; });
    return static_cast<size_t>(at - arguments.begin());
  }

  // The name of an output. A single one without a name is "output".
  constexpr std::string_view output_name(size_t o) const {
    return outputs.size() == 1 && outputs[o].name.empty() ? "output" : outputs[o].name;
  }

  // These two note a mistake if there is none with this name, and return 0.
  constexpr size_t known_argument(std::string_view wanted) {
    const size_t i = find_argument(wanted);
    return mistake.require(i < arguments.size(), {"no argument has the name ", wanted}) ? i : 0;
  }
  constexpr size_t known_gradient(std::string_view of) {
    const auto is_wanted = [&](const auto& o) { return o.is_gradient && o.name == of; };
    const auto at = std::find_if(outputs.begin(), outputs.end(), is_wanted);
    const bool found = mistake.require(at != outputs.end(), {"no output is the gradient of ", of});
    return found ? static_cast<size_t>(at - outputs.begin()) : 0;
  }

  // The argument whose dtype argument i has: the first tensor, or one that has a dtype of its own.
  constexpr size_t dtype_of(size_t i) const {
    for (size_t steps = 0; i < arguments.size() && i != first && !arguments[i].has_own_dtype() && steps < max_arguments;
         ++steps) {
      i = arguments[i].like;
    }
    return i;
  }

  // Whether a tensor may have a gradient. Its dtype is that of an argument.
  constexpr bool is_differentiable(const Argument& tensor) const {
    const size_t like = dtype_of(tensor.like);
    const Dtypes dtypes = tensor.dtypes != 0 || like == arguments.size() ? tensor.dtypes : arguments[like].dtypes;
    return dtypes == 0 || (dtypes & ((1U << differentiable_dtypes) - 1)) != 0;
  }

  // The number of tensors before an argument.
  constexpr size_t tensor_index(size_t argument) const {
    return static_cast<size_t>(std::count_if(arguments.begin(), arguments.begin() + argument,
                                             [](const auto& a) { return is_tensor(a.kind); }));
  }
  constexpr size_t tensor_count() const { return tensor_index(arguments.size()); }

  // The inverse: the argument that is tensor number `index`.
  constexpr size_t tensor_argument(size_t index) const {
    size_t i = 0;
    while (tensor_index(i + 1) <= index) ++i;
    return i;
  }
};

namespace detail {

// Equivalent to string_view::find, which g++ 12 does not evaluate at compile time with -fsanitize=undefined.
constexpr size_t find(std::string_view text, std::string_view part) {
  for (size_t i = 0; i + part.size() <= text.size(); ++i) {
    if (text.substr(i, part.size()) == part) return i;
  }
  return text.npos;
}

constexpr std::string_view trim(std::string_view s) {
  while (s.starts_with(' ')) s.remove_prefix(1);
  while (s.ends_with(' ')) s.remove_suffix(1);
  return s;
}

// Calls f(part) for the parts between commas that are not inside brackets.
template <class F>
constexpr void split(std::string_view text, Mistake& mistake, F f) {
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (!mistake.require(depth >= 0, {text, " closes a bracket that it has not opened"})) return;
    if (text[i] == ',' && depth == 0) {
      f(trim(text.substr(from, i - from)));
      from = i + 1;
    }
  }
  if (!mistake.require(depth == 0, {text, " does not close a bracket"})) return;
  if (!trim(text).empty()) f(trim(text.substr(from)));
}

constexpr bool is_name(std::string_view text) {
  const auto is_letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

// "int[]" for "int[3]".
constexpr bool is_type(std::string_view type, std::string_view known) {
  const size_t bracket = std::min(find(known, "[]"), known.size());
  if (bracket == known.size()) return type == known;
  const size_t end = find(type, "]");
  return type.substr(0, bracket + 1) == known.substr(0, bracket + 1) && end != type.npos &&
         type.substr(end) == known.substr(bracket + 1) &&
         std::all_of(type.begin() + bracket + 1, type.begin() + end, [](char c) { return c >= '0' && c <= '9'; });
}

// Sets the kind of an argument whose type is that of no tensor.
constexpr void set_attribute(Argument& a, Mistake& mistake) {
  const auto* const known = std::find_if(std::begin(attribute_types), std::end(attribute_types),
                                         [&](std::string_view each) { return is_type(a.type, each); });
  a.kind = Kind::attribute;
  if (!mistake.require(known != std::end(attribute_types),
                       {a.type, " is an unknown type; an argument is a Tensor, Tensor(a!), str, int, SymInt, ",
                        "float, bool, Scalar, ScalarType or Device, one of these with a ?, a list such as int[], ",
                        "int[3] or int[]?, or a Layout?, MemoryFormat? or Generator?"})) {
    return;
  }
  a.attribute = static_cast<size_t>(known - std::begin(attribute_types));
  if (*known == "int") a.kind = Kind::integer;
  if (*known == "SymInt") a.kind = Kind::symbolic;
  if (*known == "SymInt[]") a.kind = Kind::sizes;
}

// The part of "Tensor(a!)?" or "Tensor![]" after the annotation that says that the operator writes to the argument;
// npos if it has none.
constexpr size_t end_of_annotation(std::string_view type) {
  if (type.starts_with("Tensor!")) return 7;
  const size_t end = find(type, "!)");
  return type.starts_with("Tensor(") && end != type.npos && is_name(type.substr(7, end - 7)) ? end + 2 : type.npos;
}

// Sets the kind of an argument that is a tensor or a list of them. Returns false if it is neither.
constexpr bool set_tensor(Argument& a) {
  size_t end = end_of_annotation(a.type);
  a.is_written = end != a.type.npos;
  if (!a.is_written) end = a.type.starts_with("Tensor") ? 6 : a.type.size();
  constexpr struct {
    std::string_view suffix;
    Kind kind;
  } kinds[] = {{"", Kind::tensor},
               {"?", Kind::optional_tensor},
               {"[]", Kind::tensors},
               {"?[]", Kind::optional_tensors},
               {"[]?", Kind::maybe_tensors}};
  const auto* const known = std::find_if(std::begin(kinds), std::end(kinds),
                                         [&](const auto& each) { return each.suffix == a.type.substr(end); });
  if (end < 6 || !a.type.starts_with("Tensor") || known == std::end(kinds)) return false;
  a.kind = known->kind;
  a.suffix = known->suffix;
  return true;
}

// The bits of "int32 or int64", or of "any".
constexpr Dtypes parse_dtypes(std::string_view text) {
  if (text == "any") return any_dtype;
  Dtypes result = 0;
  while (!text.empty()) {
    const size_t end = std::min(find(text, " or "), text.size());
    const auto* const name = std::find(std::begin(dtype_names), std::end(dtype_names), text.substr(0, end));
    if (name == std::end(dtype_names)) return 0;
    result |= 1U << (name - std::begin(dtype_names));
    text.remove_prefix(std::min(end + 4, text.size()));
  }
  return result;
}

// "name[pattern] like other = default"; any part may be missing. Instead of "like other" there may be dtypes, "opmath"
// and, in an argument, "keep_wide".
constexpr void parse_name(std::string_view text, bool is_output, Argument& result, Mistake& mistake) {
  if (const auto equals = find(text, "="); equals != text.npos) {
    result.value = trim(text.substr(equals + 1));
    text = text.substr(0, equals);
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  const std::string_view whole = text;
  const auto end = std::min({find(text, "["), find(text, " "), text.size()});
  result.name = text.substr(0, end);
  text.remove_prefix(end);
  if (text.starts_with('[')) {
    mistake.require(takes_tensors(result.kind) || gives_sizes(result.kind),
                    {whole, " has a pattern; only a tensor, a list of tensors or sizes, or an integer has one"});
    const auto close = std::min(find(text, "]") + 1, text.size());
    result.pattern = Pattern(text.substr(0, close), mistake);
    text.remove_prefix(close);
  }
  if (text.starts_with(" like ")) {
    result.like_name = trim(text.substr(6));
  } else if (text == " opmath") {
    result.is_opmath = true;
  } else if (!is_output && text == " keep_wide") {
    result.keeps_wide = true;
  } else if (!text.empty()) {
    result.dtype_text = trim(text);
    result.dtypes = parse_dtypes(result.dtype_text);
    const bool is_one = (result.dtypes & (result.dtypes - 1)) == 0;
    mistake.require(result.dtypes != 0 && (is_one || !is_output),
                    {whole, " ends with ", trim(text), "; after the sizes of a tensor may come like NAME, opmath, ",
                     is_output ? "or a dtype such as int64" : "keep_wide, any, or dtypes such as int32 or int64"});
  }
  mistake.require(takes_tensors(result.kind) || !result.has_own_dtype(),
                  {whole, " has a dtype; only a tensor has one"});
}

constexpr Argument parse_argument(std::string_view text, Mistake& mistake) {
  Argument result;
  const auto space = std::min(find(text, " "), text.size());
  result.type = text.substr(0, space);
  if (!set_tensor(result)) set_attribute(result, mistake);
  parse_name(trim(text.substr(space)), /*is_output=*/false, result, mistake);
  if (result.name == "output_mask" && result.type.starts_with("bool[")) {
    result.kind = Kind::mask;
    for (const char c : result.type.substr(5, result.type.size() - 6)) result.length = 10 * result.length + (c - '0');
  }
  mistake.require(is_name(result.name), {"an argument is a type and a name, got ", text});
  const bool has_default = !result.value.empty();
  mistake.require(!has_default || !result.type.ends_with(']') ||
                      (!result.type.starts_with("bool") && !result.type.starts_with("str")),
                  {text, " has a default, which torch supports for no list of bool or str"});
  return result;
}

// Sets the kind of an output that is no single tensor. Its type is followed by a space, and a name, or by nothing.
// "Tensor[]" is a list of tensors, "Tensor sum[]" one tensor without dims.
constexpr bool set_result(std::string_view text, Argument& result) {
  const std::string_view type = text.substr(0, std::min(find(text, " "), text.size()));
  constexpr std::string_view types[] = {"Tensor?", "Tensor[]", "int", "float", "bool", "SymInt", "str", "int[]"};
  if (std::find(std::begin(types), std::end(types), type) == std::end(types)) return false;
  Mistake ignored;
  result.type = type;
  result.name = trim(text.substr(type.size()));
  if (!set_tensor(result)) set_attribute(result, ignored);
  return result.name.empty() || is_name(result.name);
}

constexpr Argument parse_output(std::string_view text, Mistake& mistake) {
  Argument result;
  if (set_result(text, result)) return result;
  result = Argument();
  result.type = "Tensor";
  const auto rest = text.substr(std::min(text.size(), result.type.size()));
  mistake.require(!text.starts_with("Tensor("),
                  {"an output is a new tensor, got ", text, "; with Variants, f.out and f_ write to arguments"});
  if (!mistake.require(
          text.starts_with(result.type) && (rest.empty() || rest[0] == ' ' || rest[0] == '['),
          {"an output is a Tensor, Tensor?, Tensor[], int, float, bool, SymInt, str or int[], got ", text})) {
    return result;
  }
  parse_name(rest.starts_with(" like ") ? rest : trim(rest), /*is_output=*/true, result, mistake);
  if (result.name.starts_with("grad(") && result.name.ends_with(')')) {
    result.is_gradient = true;
    result.name = result.name.substr(5, result.name.size() - 6);
    mistake.require(!result.is_opmath && result.dtypes == 0,
                    {text, " is a gradient, which has the dtype of its argument"});
  }
  mistake.require(result.name.empty() || is_name(result.name), {"an output is a Tensor and a name, got ", text});
  return result;
}

// "a" in "Tensor(a!)?".
constexpr std::string_view written_set(const Argument& a) { return a.type.substr(7, find(a.type, "!") - 7); }

constexpr void parse(std::string_view text, Declaration& d) {
  Mistake& mistake = d.mistake;
  const auto open = find(text, "("), arrow = find(text, "->");
  if (!mistake.require(arrow != text.npos, {text, " needs -> and its outputs"}) ||
      !mistake.require(open < arrow, {text, " needs a parenthesis before its arguments"})) {
    return;
  }
  d.name = text.substr(0, open);
  const auto colons = find(d.name, "::");
  mistake.require(colons != d.name.npos && colons + 2 < d.name.size(),
                  {d.name, " is not the name of an operator with its namespace, as in my_ops::swish"});
  auto arguments = trim(text.substr(open, arrow - open)), outputs = trim(text.substr(arrow + 2));
  if (!mistake.require(arguments.ends_with(')'), {arguments, " needs a parenthesis after the arguments"}) ||
      !mistake.require(!outputs.empty(), {text, " needs its outputs after ->"})) {
    return;
  }
  split(arguments.substr(1, arguments.size() - 2), mistake, [&](auto part) {
    if (part == "*") {
      d.keyword_only = d.arguments.size();
    } else if (mistake.require(d.arguments.size() < d.arguments.items.size(), {text, " has more than 48 arguments"})) {
      d.arguments.push_back(parse_argument(part, mistake));
    }
  });
  if (outputs.starts_with('(')) {
    if (!mistake.require(outputs.ends_with(')'), {outputs, " needs a parenthesis after the outputs"})) return;
    outputs = outputs.substr(1, outputs.size() - 2);
  }
  split(outputs, mistake, [&](auto part) {
    if (mistake.require(d.outputs.size() < d.outputs.items.size(), {text, " has more than 16 outputs"})) {
      d.outputs.push_back(parse_output(part, mistake));
    }
  });
  const auto writes = std::count_if(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return a.is_written; });
  mistake.require(writes <= 26, {d.name, " writes to more than 26 arguments"});
  for (const Argument& a : d.arguments) {
    const auto is_same = [&](const Argument& other) {
      return other.is_written && other.type[6] == '(' && written_set(other) == written_set(a);
    };
    mistake.require(
        !a.is_written || a.type[6] != '(' || std::count_if(d.arguments.begin(), d.arguments.end(), is_same) == 1,
        {a.type, " is the type of two arguments; each needs a letter of its own"});
  }
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    const auto name = d.arguments[i].name;
    const auto is_same = [&](const Argument& other) { return !other.is_gradient && other.name == name; };
    mistake.require(d.find_argument(name) == i && std::none_of(d.outputs.begin(), d.outputs.end(), is_same),
                    {"two arguments or outputs have the name ", name});
  }
}

// Finds the argument whose dtype each tensor has.
constexpr void resolve_likes(Declaration& d) {
  const auto is_required = [](const auto& a) { return a.kind == Kind::tensor; };
  const auto gives_dtype = [](const auto& a) {
    return a.kind == Kind::tensor && !a.has_own_dtype() && a.like_name.empty();
  };
  auto first = std::find_if(d.arguments.begin(), d.arguments.end(), gives_dtype);
  if (first == d.arguments.end()) first = std::find_if(d.arguments.begin(), d.arguments.end(), is_required);
  d.first = static_cast<size_t>(first - d.arguments.begin());
  const bool has_first = d.first < d.arguments.size();
  d.mistake.require(!has_first || (!first->is_opmath && !first->keeps_wide && first->like_name.empty()),
                    {d.name, " needs a Tensor that is not optional, and not like another, opmath or keep_wide"});
  for (auto& a : d.arguments) {
    a.like = a.like_name.empty() ? d.first : d.known_argument(a.like_name);
    d.mistake.require(has_first || !(a.is_opmath || a.keeps_wide),
                      {a.name, " has the dtype of a Tensor that is not optional, of which there is none"});
  }
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    const size_t root = d.dtype_of(i);
    const Dtypes named = d.arguments[root < d.arguments.size() ? root : i].dtypes;
    d.arguments[i].allowed = named != 0 ? named : floating_dtypes;
  }
  const auto is_plain = [](const auto& o) { return o.kind == Kind::tensor; };
  const auto is_list = [](const auto& a) { return is_tensor_list(a.kind); };
  const auto has_found = [](const auto& o) { return o.pattern.found() != 0; };
  d.finds_sizes = std::any_of(d.outputs.begin(), d.outputs.end(), has_found);
  d.takes_lists = std::any_of(d.arguments.begin(), d.arguments.end(), is_list);
  const bool writes = std::any_of(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return a.is_written; });
  d.allocates = d.outputs.size() > 0 && std::all_of(d.outputs.begin(), d.outputs.end(), is_plain) && has_first &&
                !d.finds_sizes && !d.takes_lists && !writes;
  for (auto& o : d.outputs) {
    if (o.kind != Kind::tensor) continue;
    o.like = o.like_name.empty() ? d.first : d.known_argument(o.like_name);
    if (o.is_gradient) {
      for (size_t i = 0; i < d.arguments.size(); ++i) {
        const Argument& a = d.arguments[i];
        if (a.name != o.name) continue;
        d.mistake.require(d.is_differentiable(a), {o.name, " has a dtype without gradients, ", a.dtype_text});
        if (o.pattern.text().empty()) o.pattern = a.pattern;
        o.like = i;
      }
    }
    if (!has_first) {
      d.mistake.require((o.pattern.text().empty() || d.takes_lists) && !o.has_own_dtype(),
                        {d.name, " has an output with sizes or a dtype, but no Tensor that is not optional"});
      continue;
    }
    // An optional argument may be missing; follow its `like` to one that is required.
    o.like = d.dtype_of(o.like);
    d.mistake.require(
        d.arguments[o.like].kind == Kind::tensor,
        {"an output has the dtype of ", d.arguments[o.like].name, ", which is not a Tensor that is required"});
  }
}

struct Letters {
  unsigned known = 0;
  constexpr bool has(char letter) const { return letter == 0 || letter == '_' || (known >> (letter - 'A') & 1) != 0; }
  constexpr bool has(const Pattern::Term& t) const { return has(t.letter) && has(t.other); }

  // Whether Checker::shape can match the pattern: each sum has at most one new letter, without a factor.
  constexpr bool solve(const Pattern& pattern) {
    Letters next = *this;
    for (size_t i = 0; i < pattern.rank(); ++i) {
      int unknown = 0;
      for (const auto& t : pattern[i]) {
        if (next.has(t)) continue;
        if (!t.is_letter() || ++unknown > 1) return false;
        next.known |= 1U << (t.letter - 'A');
      }
    }
    *this = next;
    return true;
  }
};

constexpr void order_checks(Declaration& d) {
  Letters letters;
  for (const Kind kind : {Kind::integer, Kind::symbolic, Kind::tensor, Kind::sizes, Kind::tensors,
                          Kind::optional_tensor, Kind::optional_tensors, Kind::maybe_tensors}) {
    FixedList<size_t, max_arguments> left;
    for (size_t i = 0; i < d.arguments.size(); ++i) {
      if (d.arguments[i].kind != kind) continue;
      if (is_tensor(kind)) d.by_need.push_back(i);
      if (!d.arguments[i].pattern.text().empty()) left.push_back(i);
    }
    while (left.size() > 0) {
      FixedList<size_t, max_arguments> later;
      for (const size_t i : left) {
        const bool solved = letters.solve(d.arguments[i].pattern);
        (solved ? d.by_shape : later).push_back(i);
      }
      if (!d.mistake.require(later.size() < left.size(),
                             {d.arguments[left[0]].pattern.text(), " has letters whose sizes no other pattern says"})) {
        return;
      }
      left = later;
    }
  }
  for (const Argument& a : d.arguments) {
    d.mistake.require(a.pattern.found() == 0, {a.pattern.text(), " has a letter in braces; only an output has one"});
  }
  for (const Argument& o : d.outputs) {
    d.mistake.require((letters.known & o.pattern.found()) == 0,
                      {o.pattern.text(), " has a letter in braces whose size something else says"});
    letters.known |= o.pattern.found();
  }
  const bool any_leading =
      std::any_of(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return a.pattern.has_any_leading(); });
  for (const Argument& o : d.outputs) {
    d.mistake.require(!o.pattern.has_any_leading() || any_leading,
                      {o.pattern.text(), " of an output has ... without an argument that has it"});
    d.mistake.require(!o.pattern.has_any_size(), {o.pattern.text(), " of an output has a dim of any size"});
    for (size_t i = 0; i < o.pattern.rank(); ++i) {
      for (const auto& t : o.pattern[i]) {
        d.mistake.require(letters.has(t), {o.pattern.text(), " of an output has a letter whose size no argument says"});
      }
    }
  }
}

}  // namespace detail

// Policies of a declaration.

// What a policy does unless it says otherwise.
struct PolicyDefaults {
  static constexpr bool is_inherited = false;  // by the backward operator
  static constexpr void apply(Declaration&) {}
  static constexpr void append_gradient(auto) {}
  static constexpr void append_arguments(auto) {}
  static constexpr bool drops(std::string_view) { return false; }
};

// What autocast does with the arguments.
template <CastPolicy Policy>
struct UnderAutocast : PolicyDefaults {
  static constexpr void apply(Declaration& d) { d.under_autocast = Policy; }
};

// Also defines f.out, which writes to tensors of the caller, and f_ if the result has the sizes and the dtype of the
// first argument (variants.h).
struct Variants : PolicyDefaults {
  static constexpr void apply(Declaration& d) { d.has_variants = true; }
};

// The outputs with the sizes of this argument get its strides, made dense if they are not, as those of
// torch.empty_like.
template <FixedString Name>
struct StridesOf : PolicyDefaults {
  static constexpr void apply(Declaration& d) {
    d.strides_of = d.known_argument(Name.view());
    const Argument& a = d.arguments[d.strides_of];
    const bool has_sizes = !a.pattern.text().empty() && !a.pattern.has_any_leading() && !a.pattern.has_any_size();
    d.mistake.require(a.kind == Kind::tensor && has_sizes,
                      {Name.view(), " has strides for outputs only if it is a Tensor with sizes, without ... and _"});
  }
};

// What a gradient reads.
struct Gradient {
  std::string_view of;
  FixedList<std::string_view, max_arguments> reads;
};

// The gradient of Of reads these tensors. In the declaration of a backward operator: if output_mask requests the
// gradient, those that are optional are required. In BackwardOf they are arguments and outputs of the operator.
template <FixedString Of, FixedString... Names>
struct GradientReads : PolicyDefaults {
  static constexpr void apply(Declaration& d) {
    const auto require = [&](std::string_view name) {
      const size_t argument = d.known_argument(name);
      const bool may_be_missing = d.arguments[argument].kind == Kind::optional_tensor;
      if (may_be_missing) d.requirements.push_back({d.known_gradient(Of.view()), argument});
    };
    d.known_gradient(Of.view());
    (require(Names.view()), ...);
  }
  static constexpr void append_gradient(auto append) {
    append(Gradient{Of.view(), {{Names.view()...}, sizeof...(Names)}});
  }
};

namespace detail {

// The GradientReads among the policies, in order.
template <class... Policies>
consteval auto gradients_in() {
  FixedList<Gradient, max_outputs> result;
  (Policies::append_gradient([&](const Gradient& g) { result.push_back(g); }), ...);
  return result;
}

}  // namespace detail

// Arguments of the operator that its backward operator does not take, although they are not tensors.
template <FixedString... Names>
struct Without : PolicyDefaults {
  static constexpr bool drops(std::string_view name) { return ((Names.view() == name) || ...); }
};

// Further arguments of a backward operator, "int[] order=[]", after those that BackwardOf derives.
template <FixedString... Arguments>
struct FurtherArguments : PolicyDefaults {
  static constexpr void append_arguments(auto append) { (append(Arguments.view()), ...); }
};

// The letters of dims along which the op computes its parts independently of each other: DTensor shards along them, as
// along a first dim with "?". An output without a pattern has them where the first tensor has them.
template <FixedString... Letters>
struct Sharded : PolicyDefaults {
  static constexpr bool is_inherited = true;
  static constexpr void apply(Declaration& d) { d.independent |= (bit(d, Letters.view()) | ...); }

 private:
  static constexpr unsigned bit(Declaration& d, std::string_view letter) {
    const bool is_dim = std::any_of(d.arguments.begin(), d.arguments.end(), [&](const auto& a) {
      for (size_t i = 0; i < a.pattern.rank(); ++i) {
        if (letter.size() == 1 && a.pattern.letter(i) == letter[0]) return true;
      }
      return false;
    });
    return d.mistake.require(is_dim, {"no dim of an argument is ", letter, " alone"}) ? 1U << (letter[0] - 'A') : 0;
  }
};

// The same, and the first letter is that of the rows, to which vmap may add its batch (BatchingRule).
template <FixedString Rows, FixedString... Letters>
struct Independent : Sharded<Rows, Letters...> {
  static constexpr void apply(Declaration& d) {
    Sharded<Rows, Letters...>::apply(d);
    d.rows = Rows.view()[0];
  }
};

// References to the N members of an aggregate.
template <size_t N, class T>
constexpr auto members(const T& aggregate) {
  static_assert(N >= 1 && N <= 8, "a Config has 1 to 8 members");
  if constexpr (N == 1) {
    const auto& [a] = aggregate;
    return std::tie(a);
  } else if constexpr (N == 2) {
    const auto& [a, b] = aggregate;
    return std::tie(a, b);
  } else if constexpr (N == 3) {
    const auto& [a, b, c] = aggregate;
    return std::tie(a, b, c);
  } else if constexpr (N == 4) {
    const auto& [a, b, c, d] = aggregate;
    return std::tie(a, b, c, d);
  } else if constexpr (N == 5) {
    const auto& [a, b, c, d, e] = aggregate;
    return std::tie(a, b, c, d, e);
  } else if constexpr (N == 6) {
    const auto& [a, b, c, d, e, f] = aggregate;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (N == 7) {
    const auto& [a, b, c, d, e, f, g] = aggregate;
    return std::tie(a, b, c, d, e, f, g);
  } else {
    const auto& [a, b, c, d, e, f, g, h] = aggregate;
    return std::tie(a, b, c, d, e, f, g, h);
  }
}

namespace detail {

// A number as the default value of an argument is written: 16, 2.0 or 1e-3.
constexpr double number(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  double value = 0;
  int exponent = 0;
  bool after_point = false;
  for (size_t i = is_negative ? 1 : 0; i < text.size(); ++i) {
    if (text[i] == 'e') {
      const bool is_below_one = text.substr(i + 1).starts_with('-');
      int power = 0;
      for (const char c : text.substr(i + (is_below_one ? 2 : 1))) power = 10 * power + (c - '0');
      exponent += is_below_one ? -power : power;
      break;
    }
    if (text[i] == '.') {
      after_point = true;
    } else {
      value = 10 * value + (text[i] - '0');
      exponent -= after_point ? 1 : 0;
    }
  }
  for (; exponent > 0; --exponent) value *= 10;
  double divisor = 1;
  for (; exponent < 0; ++exponent) divisor *= 10;
  return (is_negative ? -value : value) / divisor;
}

template <class T>
constexpr bool is_default(std::string_view text, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return text == (value ? "True" : "False");
  } else if constexpr (std::is_arithmetic_v<T>) {
    return number(text) == static_cast<double>(value);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    return text.size() >= 2 && text.substr(1, text.size() - 2) == std::string_view(value);
  } else {
    return text == (value ? "" : "None");  // an optional
  }
}

}  // namespace detail

// The arguments from First to Last are the members of the aggregate T, in the same order and with the same defaults.
// Then args.config() and saved.config() return a T, and Op::call takes one in their place.
template <class T, FixedString First, FixedString Last>
struct Config : PolicyDefaults {
  using type = T;
  static constexpr bool is_inherited = true;

  static constexpr void apply(Declaration& d) {
    const size_t first = d.known_argument(First.view()), last = d.known_argument(Last.view());
    if (!d.mistake.require(first <= last, {First.view(), " comes after ", Last.view()})) return;
    d.config_first = first;
    d.config_count = last + 1 - first;
    for (size_t i = first; i <= last; ++i) {
      d.mistake.require(!is_tensor(d.arguments[i].kind),
                        {d.arguments[i].name, " is a tensor, which a Config cannot have"});
    }
  }
};

namespace detail {

// The aggregate of a Config among the policies; void if there is none.
template <class... Policies>
struct ConfigIn : std::type_identity<void> {};
template <class T, FixedString First, FixedString Last, class... Rest>
struct ConfigIn<Config<T, First, Last>, Rest...> : std::type_identity<T> {};
template <class First, class... Rest>
struct ConfigIn<First, Rest...> : ConfigIn<Rest...> {};

template <class... Policies>
constexpr Declaration parsed(std::string_view text) {
  Declaration d;
  parse(text, d);
  if (d.mistake.exists()) return d;
  (Policies::apply(d), ...);
  resolve_likes(d);
  d.mistake.require(d.allocates || !d.has_variants,
                    {d.name, " has Variants, which only an operator has that writes to nothing and returns tensors"});
  if (d.mistake.exists()) return d;
  order_checks(d);
  for (const Argument& a : d.arguments) {
    d.mistake.require(a.kind != Kind::mask || a.length == d.outputs.size(),
                      {a.type, " ", a.name, " must have an entry for each output"});
  }
  return d;
}

// Finds a default value that differs from that of the member of the Config.
template <class Config, size_t Count>
constexpr Mistake check_defaults(const Declaration& d) {
  Mistake mistake;
  if constexpr (!std::is_void_v<Config>) {
    size_t i = d.config_first;
    const auto check = [&](const auto& member) {
      const Argument& a = d.arguments[i++];
      mistake.require(a.value.empty() || is_default(a.value, member),
                      {a.name, "=", a.value, " is not the default of the member of the Config"});
    };
    constexpr Config defaults{};
    std::apply([&](const auto&... member) { (check(member), ...); }, members<Count>(defaults));
  }
  return mistake;
}

// Not defined for a mistake, so that the compiler prints it.
template <Mistake>
struct DeclarationWith;
template <>
struct DeclarationWith<Mistake{}> {
  static constexpr bool compiles = true;
};

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
