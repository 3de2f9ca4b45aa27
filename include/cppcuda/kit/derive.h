#pragma once

// What follows from a declaration (schema.h) at compile time: torch's schema, what autocast does, the conditions of a
// batching rule, the rule for DTensor, and the declarations of the operator with hidden outputs and of the backward
// operator. This header includes nothing of torch.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "cppcuda/kit/schema.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// The name without its namespace.
constexpr std::string_view base_name(const Declaration& d) { return d.name.substr(detail::find(d.name, "::") + 2); }

// What autocast does with the arguments. An operator whose name begins with an underscore is called by others, whose
// arguments were cast, so it has no policy unless its declaration has one. One tensor has nothing to be promoted to.
constexpr CastPolicy cast_policy(const Declaration& d) {
  if (d.under_autocast != CastPolicy::promote) return d.under_autocast;
  const bool is_internal = base_name(d).starts_with('_');
  const auto floating = std::count_if(d.arguments.begin(), d.arguments.end(),
                                      [](const auto& a) { return is_tensor(a.kind) && a.dtypes == 0; });
  return is_internal || floating < 2 ? CastPolicy::none : CastPolicy::promote;
}

// What autocast does with an argument, whatever the policy is.
enum class Cast { by_policy, to_float32, none };
constexpr Cast cast_of(const Declaration& d, size_t i) {
  const size_t root = d.dtype_of(i);
  if (root == d.arguments.size()) return Cast::by_policy;
  if (d.arguments[root].dtypes != 0) return Cast::none;
  return root == d.first ? Cast::by_policy : Cast::to_float32;
}

// Whether a result may take the place of the first argument.
constexpr bool fits_in_place(const Declaration& d) {
  const Argument &first = d.arguments[0], &result = d.outputs[0];
  return d.outputs.size() == 1 && first.kind == Kind::tensor && !result.pattern.text().empty() &&
         result.pattern.text() == first.pattern.text() && result.dtypes == 0 && !result.is_opmath &&
         result.like == d.dtype_of(0);
}

constexpr bool has_patterns(const Declaration& d) {
  return std::any_of(d.arguments.begin(), d.arguments.end(),
                     [](const auto& a) { return takes_tensors(a.kind) && !a.pattern.text().empty(); });
}
constexpr bool writes(const Declaration& d) {
  return std::any_of(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return a.is_written; });
}
constexpr bool takes_tensors(const Declaration& d) {
  return std::any_of(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return takes_tensors(a.kind); });
}

// Whether "..." stands for any dims of a tensor.
constexpr bool has_any_leading(const Declaration& d) {
  return std::any_of(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return a.pattern.has_any_leading(); });
}

// Whether a tensor has the dims to which vmap adds its batch: "...", or the first dim of the tensors with "?", or of
// the first tensor if there are none.
constexpr bool has_leading(const Declaration& d, const Pattern& pattern) {
  if (has_any_leading(d)) return pattern.has_any_leading();
  const auto* const with_optional =
      std::find_if(d.arguments.begin(), d.arguments.end(), [](const auto& a) { return a.pattern.has_optional(); });
  const Pattern& first =
      d.arguments[with_optional != d.arguments.end() ? with_optional - d.arguments.begin() : d.first].pattern;
  return pattern.rank() > 0 && first.rank() > 0 && pattern.letter(0) != 0 && pattern.letter(0) == first.letter(0);
}

// The dim of the rows, not counting an optional first dim; -1 if there is none.
constexpr int64_t row_dim(const Declaration& d, const Argument& tensor) {
  for (size_t i = 1; tensor.pattern.has_optional() && i < tensor.pattern.rank(); ++i) {
    if (d.rows != 0 && tensor.pattern.letter(i) == d.rows) return static_cast<int64_t>(i) - 1;
  }
  return -1;
}

// Whether rows share an argument that has none, such as the table in table[B?, V, F], points[B?, N, 3].
constexpr bool rows_share(const Declaration& d) {
  const auto count = [&](bool with) {
    return std::count_if(d.arguments.begin(), d.arguments.end(),
                         [&](const auto& a) { return is_tensor(a.kind) && (row_dim(d, a) >= 0) == with; });
  };
  return count(true) > 0 && count(false) > 0;
}

// A null-terminated string that is built at compile time.
template <size_t N>
struct FixedText {
  std::array<char, N + 1> value{};
  size_t size = 0;
  constexpr void append(std::string_view text) { size = std::copy(text.begin(), text.end(), &value[size]) - &value[0]; }
  constexpr std::string_view view() const { return {value.data(), size}; }
};

// A FixedText as an argument of templates.
template <const auto& Text>
consteval auto fixed_string() {
  char value[Text.size + 1] = {};
  std::copy_n(Text.value.data(), Text.size, value);
  return FixedString<Text.size + 1>(value);
}

// A number below 100.
constexpr void append_number(auto& text, size_t number) {
  const char digits[] = {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10)};
  text.append(number < 10 ? std::string_view(&digits[1], 1) : std::string_view(digits, 2));
}

// An argument in torch's schema: "float beta=1.0".
constexpr void append_argument(auto& text, const Argument& a) {
  for (const auto part :
       {a.type, std::string_view(" "), a.name, std::string_view(a.value.empty() ? "" : "="), a.value}) {
    text.append(part);
  }
}

// The schema that torch gets, without patterns.
template <size_t N>
constexpr FixedText<N> torch_schema(const Declaration& d) {
  FixedText<N> text;
  text.append(base_name(d));
  text.append("(");
  char set = 'a';
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    Argument a = d.arguments[i];
    if (i > 0) text.append(", ");
    if (i == d.keyword_only) text.append("*, ");
    if (a.is_written) {
      text.append("Tensor(");
      text.append({&set, 1});
      text.append("!)");
      a.type = a.suffix;
      ++set;
    }
    append_argument(text, a);
  }
  const bool is_one = d.outputs.size() == 1 && (d.outputs[0].is_gradient || d.outputs[0].name.empty());
  text.append(is_one ? ") -> " : ") -> (");
  for (size_t i = 0; i < d.outputs.size(); ++i) {
    const Argument& o = d.outputs[i];
    text.append(i == 0 ? "" : ", ");
    text.append(o.type);
    if (o.is_gradient || o.name.empty()) continue;
    text.append(" ");
    text.append(o.name);
  }
  if (!is_one) text.append(")");
  return text;
}

// The rule for DTensor, such as "...N_F,...N_->...NF ...NF": the dims of all tensors as in einsum, those of a list
// once, then those to shard along. A dim that is no letter alone is a "_". Empty if a tensor has no pattern, and for
// operators that write, return anything but tensors, or find sizes.
template <size_t N>
constexpr FixedText<N> sharding_rule(const Declaration& d) {
  FixedText<N> text;
  const bool returns_tensors =
      std::all_of(d.outputs.begin(), d.outputs.end(), [](const auto& o) { return o.kind == Kind::tensor; });
  if (!returns_tensors || d.outputs.size() == 0 || d.finds_sizes || writes(d)) return text;
  const auto is_independent = [&](char letter) { return letter != 0 && (d.independent >> (letter - 'A') & 1) != 0; };
  const auto append_dims = [&](const Pattern& pattern, bool all) {
    text.append(pattern.has_optional() || pattern.has_any_leading() ? "..." : "");
    for (size_t i = pattern.has_optional() ? 1 : 0; i < pattern.rank(); ++i) {
      const char letter = pattern.letter(i);
      text.append(letter != 0 && (all || is_independent(letter)) ? std::string_view(&letter, 1) : "_");
    }
  };
  const auto any_tensor = [](const auto& a) { return takes_tensors(a.kind); };
  const auto tensor = std::find_if(d.arguments.begin(), d.arguments.end(), any_tensor);
  if (tensor == d.arguments.end()) return text;
  const Pattern& first = d.first < d.arguments.size() ? d.arguments[d.first].pattern : tensor->pattern;
  bool begins = true;
  for (const Argument& a : d.arguments) {
    if (!takes_tensors(a.kind)) continue;
    if (a.pattern.text().empty()) return {};
    text.append(begins ? "" : ",");
    append_dims(a.pattern, true);
    begins = false;
  }
  text.append("->");
  for (size_t o = 0; o < d.outputs.size(); ++o) {
    const bool has_pattern = !d.outputs[o].pattern.text().empty();
    if (!has_pattern && !d.allocates) return {};
    text.append(o == 0 ? "" : ",");
    append_dims(has_pattern ? d.outputs[o].pattern : first, has_pattern);
  }
  // An output without "..." that is not a gradient may be something else than a sum over these dims.
  const bool has_sums = std::all_of(d.outputs.begin(), d.outputs.end(),
                                    [](const auto& o) { return o.is_gradient || o.pattern.has_any_leading(); });
  text.append(first.has_optional() || (has_any_leading(d) && has_sums) ? " ..." : " ");
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    if (is_independent(letter)) text.append({&letter, 1});
  }
  return text;
}

// "hidden Tensor rstd[N]": an output of the internal operator only.
constexpr bool is_hidden(std::string_view output) { return output.starts_with("hidden "); }

// Calls f for each output in "f(...) -> (Tensor a, hidden Tensor b)". The parser finds what is wrong with them.
constexpr void for_each_output(std::string_view text, auto f) {
  const auto arrow = find(text, "->");
  if (arrow == text.npos) return;
  const std::string_view outputs = trim(text.substr(arrow + 2));
  if (!outputs.starts_with('(') || !outputs.ends_with(')')) return f(outputs);
  Mistake ignored;
  split(outputs.substr(1, outputs.size() - 2), ignored, f);
}

constexpr bool hides_outputs(std::string_view text) {
  bool result = false;
  for_each_output(text, [&](std::string_view output) { result = result || is_hidden(output); });
  return result;
}

constexpr bool hidden_outputs_come_last(std::string_view text) {
  bool result = true, after_hidden = false;
  for_each_output(text, [&](std::string_view output) {
    result = result && (is_hidden(output) || !after_hidden);
    after_hidden = after_hidden || is_hidden(output);
  });
  return result;
}

// Appends the declaration of the operator with all outputs, whose name begins with an underscore, or of the one without
// the hidden ones.
constexpr void append_declaration(std::string_view text, bool with_hidden, auto append) {
  const auto arrow = find(text, "->"), colons = std::min(find(text, "::") + 2, arrow);
  append(text.substr(0, colons));
  append(with_hidden ? "_" : "");
  append(text.substr(colons, arrow - colons));
  append("-> (");
  std::string_view comma = "";
  for_each_output(text, [&](std::string_view output) {
    if (is_hidden(output)) {
      if (!with_hidden) return;
      output.remove_prefix(7);
    }
    append(comma);
    append(output);
    comma = ", ";
  });
  append(")");
}

template <FixedString Text, bool WithHidden>
struct HiddenText {
  static constexpr auto text = [] {
    FixedText<sizeof(Text.value) + 8> result;
    append_declaration(Text.view(), WithHidden, [&](std::string_view part) { result.append(part); });
    return result;
  }();
};

// The name of the gradient of an output among the arguments of a backward operator.
constexpr void append_gradient_name(auto& text, const Argument& output, size_t outputs) {
  text.append("grad");
  if (output.is_gradient) text.append("_grad");
  if (!output.is_gradient && (output.name.empty() || outputs == 1)) return;
  text.append("_");
  text.append(output.name);
}

// The declaration that BackwardOf (op.h) derives. TheOp returns what the caller sees, and Whole the hidden outputs too.
template <class TheOp, class Whole, class... Policies>
struct BackwardText {
  static constexpr auto gradients = gradients_in<Policies...>();

 private:
  using Text = FixedText<4 * TheOp::text.size() + 512>;
  static constexpr Declaration named(Declaration d) {
    for (size_t o = 0; o < d.outputs.size(); ++o) d.outputs[o].name = d.output_name(o);
    return d;
  }
  static constexpr Declaration op = named(TheOp::declaration), whole = named(Whole::declaration);

  static constexpr bool reads(const Gradient& gradient, std::string_view name) {
    return std::find(gradient.reads.begin(), gradient.reads.end(), name) != gradient.reads.end();
  }
  static constexpr bool all_read(std::string_view name) {
    return std::all_of(gradients.begin(), gradients.end(), [&](const Gradient& g) { return reads(g, name); });
  }
  static constexpr bool any_reads(std::string_view name) {
    return std::any_of(gradients.begin(), gradients.end(), [&](const Gradient& g) { return reads(g, name); });
  }

  // An output that is a gradient has the name of an input.
  static constexpr bool is_saved(const Argument& output) { return !output.is_gradient && any_reads(output.name); }

  struct Builder {
    Text text;
    Mistake mistake;
    std::string_view separator = "(";

    constexpr void next() {
      text.append(separator);
      separator = ", ";
    }

    // The dtype of a tensor of the operator, as the words of a declaration.
    constexpr void append_dtype(const Argument& tensor, bool is_input) {
      if (tensor.is_opmath) return text.append(" opmath");
      if (is_input && tensor.keeps_wide) return text.append(" keep_wide");
      // An argument that this operator may not have cannot say the dtype.
      const Argument& root = whole.arguments[whole.dtype_of(tensor.like)];
      const std::string_view dtypes = tensor.dtypes != 0 ? tensor.dtype_text : root.dtype_text;
      if (!dtypes.empty()) {
        text.append(" ");
        return text.append(dtypes);
      }
      if (whole.dtype_of(tensor.like) == whole.first && (!is_input || tensor.like_name.empty())) return;
      text.append(" like ");
      text.append(is_input ? tensor.like_name : whole.arguments[tensor.like].name);
    }

    constexpr void append_tensor(const Argument& tensor, bool is_required, bool is_input) {
      next();
      text.append(is_required ? "Tensor " : "Tensor? ");
      text.append(tensor.name);
      text.append(tensor.pattern.text());
      append_dtype(tensor, is_input);
    }

    constexpr void append_gradients_of_outputs() {
      for (const Argument& output : op.outputs) {
        if (!op.is_differentiable(output)) continue;
        FixedText<64> name;
        append_gradient_name(name, output, op.outputs.size());
        mistake.require(!output.pattern.text().empty() || !has_patterns(whole),
                        {op.name, " has an output without sizes, from which no backward operator follows"});
        next();
        text.append(is_only_gradient(output) || all_read(name.view()) ? "Tensor " : "Tensor? ");
        text.append(name.view());
        text.append(output.pattern.text());
        append_dtype(output, /*is_input=*/false);
      }
    }

    constexpr void append_name() {
      std::string_view stem = whole.name;
      const size_t colons = find(stem, "::") + 2;
      text.append(stem.substr(0, colons));
      stem.remove_prefix(colons);
      if (!stem.starts_with('_')) text.append("_");
      const std::string_view backward = "_backward";
      const bool is_second = stem.ends_with(backward);
      if (is_second) stem.remove_suffix(backward.size());
      text.append(stem);
      text.append(is_second ? "_double_backward" : backward);
    }
  };

  // Whether no other output has a gradient.
  static constexpr bool is_only_gradient(const Argument& output) {
    return op.is_differentiable(output) && std::count_if(op.outputs.begin(), op.outputs.end(),
                                                         [](const auto& o) { return op.is_differentiable(o); }) == 1;
  }

  // Whether the declaration has a required tensor of the first dtype without the operator's first tensor.
  static constexpr bool gives_dtype() {
    const auto is_plain = [](const Argument& t) { return !t.has_own_dtype() && whole.dtype_of(t.like) == whole.first; };
    for (const Argument& o : op.outputs) {
      if (is_only_gradient(o) && is_plain(o)) return true;
    }
    for (const Argument& o : whole.outputs) {
      if (is_plain(o) && is_saved(o) && all_read(o.name)) return true;
    }
    for (const Argument& a : whole.arguments) {
      if (a.kind == Kind::tensor && !a.has_own_dtype() && a.like_name.empty() && all_read(a.name)) return true;
    }
    return false;
  }

  static constexpr bool is_required(const Argument& input) {
    const bool is_first = &input == &whole.arguments[whole.first];
    // Its gradient has its dtype.
    const bool gives_own_dtype = input.has_own_dtype() && std::any_of(gradients.begin(), gradients.end(),
                                                                      [&](auto& g) { return g.of == input.name; });
    return input.kind == Kind::tensor &&
           (!whole.is_differentiable(input) || gives_own_dtype || all_read(input.name) || (is_first && !gives_dtype()));
  }
  static constexpr bool is_argument(const Argument& input) {
    return !whole.is_differentiable(input) || any_reads(input.name) || is_required(input);
  }

  // The letters whose sizes the arguments that a gradient reads say.
  static constexpr Letters letters_of(const Gradient& gradient) {
    FixedList<const Pattern*, 2 * max_arguments> patterns;
    if (op.outputs.size() == 1) patterns.push_back(&op.outputs[0].pattern);
    for (const Argument& o : whole.outputs) {
      if (is_saved(o) && reads(gradient, o.name)) patterns.push_back(&o.pattern);
    }
    for (const Argument& a : whole.arguments) {
      if (!is_tensor(a.kind) || is_required(a) || reads(gradient, a.name)) patterns.push_back(&a.pattern);
    }
    Letters letters;
    for (size_t round = 0; round < patterns.size(); ++round) {
      for (const Pattern* pattern : patterns) letters.solve(*pattern);
    }
    return letters;
  }

  // The letters of the gradients that no argument says.
  static constexpr void append_size(Builder& b) {
    Letters written;
    FixedText<64> letters;
    for (const Gradient& g : gradients) {
      const Pattern& pattern = whole.arguments[whole.find_argument(g.of)].pattern;
      const Letters known = letters_of(g);
      for (size_t i = 0; i < pattern.rank(); ++i) {
        for (const auto& term : pattern[i]) {
          for (const char letter : {term.letter, term.other}) {
            if (known.has(letter) || written.has(letter)) continue;
            written.known |= 1U << (letter - 'A');
            letters.append(letters.size == 0 ? "" : ", ");
            letters.append({&letter, 1});
          }
        }
      }
    }
    if (letters.size == 0) return;
    b.next();
    b.text.append("SymInt[");
    append_number(b.text, static_cast<size_t>(std::count(letters.view().begin(), letters.view().end(), ',')) + 1);
    b.text.append("] size[");
    b.text.append(letters.view());
    b.text.append("]");
  }

  static constexpr Builder build() {
    Builder b;
    for (const Gradient& g : gradients) {
      const size_t i = whole.find_argument(g.of);
      const bool is_variable = i < whole.arguments.size() && is_tensor(whole.arguments[i].kind);
      b.mistake.require(is_variable, {"no tensor among the arguments has the name ", g.of});
    }
    b.mistake.require(whole.allocates, {op.name,
                                        " has no derivatives: it writes to an argument, takes a list of tensors, "
                                        "or returns other values than tensors"});
    b.mistake.require(gradients.size() > 0, {op.name, " needs GradientReads for its backward operator"});
    if (b.mistake.exists()) return b;
    b.append_name();
    const bool is_second =
        std::any_of(op.outputs.begin(), op.outputs.end(), [](const auto& o) { return o.is_gradient; });
    if (!is_second) b.append_gradients_of_outputs();
    for (const Argument& o : whole.outputs) {
      if (is_saved(o)) b.append_tensor(o, all_read(o.name), /*is_input=*/false);
    }
    for (const Argument& a : whole.arguments) {
      if (is_tensor(a.kind) && is_argument(a)) b.append_tensor(a, is_required(a), /*is_input=*/true);
    }
    if (is_second) b.append_gradients_of_outputs();
    append_size(b);
    for (const Argument& a : whole.arguments) {
      if (is_tensor(a.kind) || a.kind == Kind::mask || (Policies::drops(a.name) || ...)) continue;
      b.next();
      b.text.append(a.type);
      b.text.append(" ");
      b.text.append(a.name);
      b.text.append(a.pattern.text());
    }
    if (gradients.size() > 1) {
      b.next();
      b.text.append("bool[");
      append_number(b.text, gradients.size());
      b.text.append("] output_mask");
    }
    (Policies::append_arguments([&](std::string_view argument) {
       b.next();
       b.text.append(argument);
     }),
     ...);
    b.text.append(") -> ");
    b.separator = "(";
    for (const Gradient& g : gradients) {
      const Argument& a = whole.arguments[whole.find_argument(g.of)];
      if (gradients.size() > 1) b.next();
      b.text.append("Tensor grad(");
      b.text.append(g.of);
      b.text.append(")");
      if (!is_argument(a)) b.text.append(a.pattern.text());
    }
    if (gradients.size() > 1) b.text.append(")");
    return b;
  }

  static constexpr Builder built = build();
  static_assert(DeclarationWith<built.mistake>::compiles);

 public:
  static constexpr Text text = built.text;
};

}  // namespace detail

// kit::Op without what needs torch.
template <FixedString Text, class... Policies>
struct OpBase {
  static constexpr Declaration declaration = detail::parsed<Policies...>(Text.view());
  using Config = typename detail::ConfigIn<Policies...>::type;
  static_assert(detail::DeclarationWith<declaration.mistake>::compiles);
  static_assert(
      detail::DeclarationWith<detail::check_defaults<Config, declaration.config_count>(declaration)>::compiles);
  static constexpr auto gradients = detail::gradients_in<Policies...>();

 private:
  static constexpr auto name_text = [] {
    detail::FixedText<declaration.name.size()> text;
    text.append(declaration.name);
    return text;
  }();
  // "Tensor!" becomes "Tensor(a!)".
  static constexpr auto schema_text = detail::torch_schema<sizeof(Text.value) + 3 * 26>(declaration);
  static constexpr auto sharding_text = detail::sharding_rule<sizeof(Text.value) + 32>(declaration);

 public:
  static constexpr std::string_view text = Text.view();
  static constexpr const char* name = name_text.value.data();            // with its namespace
  static constexpr const char* torch_schema = schema_text.value.data();  // without patterns
  static constexpr const char* sharding_rule = sharding_text.value.data();
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
