// Reads PTX. Only what nvcc generates for kernels is understood; anything else is an error.

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <unordered_map>

#include "interpreter.h"

namespace cppcuda::emulator {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t k = 0; k <= s.size(); ++k) {
    if (k == s.size() || (s[k] == separator && depth == 0)) {
      if (const auto part = trim(s.substr(begin, k - begin)); !part.empty()) parts.push_back(part);
      begin = k + 1;
    } else if (s[k] == '{' || s[k] == '[' || s[k] == '(') {
      ++depth;
    } else if (s[k] == '}' || s[k] == ']' || s[k] == ')') {
      --depth;
    }
  }
  return parts;
}

std::vector<std::string_view> words(std::string_view s) {
  std::vector<std::string_view> result;
  for (size_t k = 0; k < s.size();) {
    if (std::isspace(static_cast<unsigned char>(s[k])) || s[k] == ',') {
      ++k;
    } else {
      const size_t begin = k;
      while (k < s.size() && !std::isspace(static_cast<unsigned char>(s[k])) && s[k] != ',') ++k;
      result.push_back(s.substr(begin, k - begin));
    }
  }
  return result;
}

void skip_space(std::string_view text, size_t& at) {
  for (;;) {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    if (text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at).starts_with("/*")) {
      at = text.find("*/", at) + 2;
    } else {
      return;
    }
  }
}

// The position after the brace that closes the one at `at`.
size_t close(std::string_view text, size_t at, char open, char closed) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == open) ++depth;
    if (text[at] == closed && --depth == 0) return at + 1;
  }
  throw Error("a brace is not closed");
}

// A variable: ".align 16 .b8 name[48]", ".u64 name", ".u64 .ptr .global .align 8 name".
struct Variable {
  std::string name;
  size_t bytes = 0, align = 0;
};

Variable parse_variable(std::string_view text) {
  Variable v;
  Type type;
  const auto parts = words(text);
  size_t count = 1, element = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k] == ".align") {
      v.align = std::stoul(std::string(parts[++k]));
    } else if (parts[k].starts_with(".")) {
      if (parse_type(parts[k].substr(1), type)) element = static_cast<size_t>(type.bits / 8);
    } else {
      std::string_view name = parts[k];
      if (const size_t bracket = name.find('['); bracket != std::string_view::npos) {
        const std::string_view size = name.substr(bracket + 1, name.find(']') - bracket - 1);
        count = size.empty() ? 0 : std::stoul(std::string(size));
        name = name.substr(0, bracket);
      }
      v.name = name;
    }
  }
  if (v.align == 0 || text.find(".ptr") != std::string_view::npos) v.align = element;
  if (v.name.empty() || element == 0) throw Error("not understood: " + std::string(text));
  v.bytes = count * element;
  return v;
}

uint64_t parse_integer(std::string_view text) {
  std::string s(text);
  const bool negative = !s.empty() && s[0] == '-';
  if (negative) s.erase(0, 1);
  if (!s.empty() && (s.back() == 'U' || s.back() == 'u')) s.pop_back();
  size_t end = 0;
  const uint64_t value = std::stoull(s, &end, 0);
  if (end != s.size()) throw Error("not a number: " + std::string(text));
  return negative ? 0 - value : value;
}

size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

// Parses the body of a kernel.
struct Parser {
  Kernel& k;
  std::vector<std::unordered_map<std::string, Ref>> scopes{1};
  std::unordered_map<std::string, std::pair<uint64_t, char>> symbols;  // of the kernel: offset, space
  std::unordered_map<std::string, int> labels;
  std::vector<std::pair<size_t, std::string>> branches;
  std::map<std::pair<int, uint64_t>, Ref> constants;
  std::map<Special, Ref> specials;
  size_t shared = 0, local = 0;
  Ref carry{0, -1, 0, false};
  Line here, inlined_at;
  std::string_view mark_name;  // "slice" or "forget" of kit/cuda/shared_memory.cuh
  Ref mark;

  explicit Parser(Kernel& kernel) : k(kernel) {
    k.registers = 2;         // always_defined, sink
    k.register_bytes = 256;  // the sink
  }

  Ref new_register(uint8_t width) {
    const Ref r{k.register_bytes, k.registers++, width, false};
    k.register_bytes += static_cast<uint32_t>(align_up(width == 0 ? 4 : width * 32u, 64));
    return r;
  }

  Ref constant(uint64_t bits, uint8_t width) {
    if (width < 8) bits &= (uint64_t{1} << (8 * width)) - 1;
    const auto [it, is_new] = constants.try_emplace({width, bits});
    if (is_new) {
      it->second = new_register(width);
      it->second.index = always_defined;
      k.constants.push_back({it->second.offset, width, bits});
    }
    return it->second;
  }

  Ref special(std::string_view name) {
    static const std::unordered_map<std::string_view, Special> known{{"%tid.x", Special::tid_x},
                                                                     {"%tid.y", Special::tid_y},
                                                                     {"%tid.z", Special::tid_z},
                                                                     {"%ntid.x", Special::ntid_x},
                                                                     {"%ntid.y", Special::ntid_y},
                                                                     {"%ntid.z", Special::ntid_z},
                                                                     {"%ctaid.x", Special::ctaid_x},
                                                                     {"%ctaid.y", Special::ctaid_y},
                                                                     {"%ctaid.z", Special::ctaid_z},
                                                                     {"%nctaid.x", Special::nctaid_x},
                                                                     {"%nctaid.y", Special::nctaid_y},
                                                                     {"%nctaid.z", Special::nctaid_z},
                                                                     {"%laneid", Special::laneid},
                                                                     {"%warpid", Special::warpid},
                                                                     {"%nwarpid", Special::nwarpid},
                                                                     {"%smid", Special::smid},
                                                                     {"%nsmid", Special::nsmid},
                                                                     {"%lanemask_eq", Special::lanemask_eq},
                                                                     {"%lanemask_le", Special::lanemask_le},
                                                                     {"%lanemask_lt", Special::lanemask_lt},
                                                                     {"%lanemask_ge", Special::lanemask_ge},
                                                                     {"%lanemask_gt", Special::lanemask_gt},
                                                                     {"%dynamic_smem_size", Special::dynamic_smem},
                                                                     {"%total_smem_size", Special::total_smem}};
    const auto found = known.find(name);
    if (found == known.end()) throw Error("unknown register " + std::string(name));
    const auto [it, is_new] = specials.try_emplace(found->second);
    if (is_new) {
      it->second = new_register(4);
      it->second.index = always_defined;
      k.specials.emplace_back(it->second.offset, found->second);
    }
    return it->second;
  }

  const Ref* find_register(std::string_view name) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      if (const auto it = scope->find(std::string(name)); it != scope->end()) return &it->second;
    }
    return nullptr;
  }

  std::pair<uint64_t, char> symbol(std::string_view name) const {
    if (const auto it = symbols.find(std::string(name)); it != symbols.end()) return it->second;
    if (const auto it = k.module->symbols_.find(std::string(name)); it != k.module->symbols_.end()) {
      if (it->second.second == 'x') return {dynamic_shared(), 's'};
      return it->second;
    }
    throw Error("unknown symbol " + std::string(name));
  }

  // Dynamic shared memory comes after the static one, which is known only after the body has been parsed.
  uint64_t dynamic_shared() const {
    if (shared != k.info.static_shared) throw Error("static shared memory is declared after dynamic one is used");
    return align_up(shared, 16);
  }

  void declare(std::string_view text) {  // ".reg .b32 %r<5>", ".reg .pred p, q"
    const auto parts = words(text);
    Type type;
    if (!parse_type(parts[1].substr(1), type)) throw Error("not understood: " + std::string(text));
    if (type.pair) type.bits = 32;
    const uint8_t width = type.kind == 'p' ? 0 : static_cast<uint8_t>(type.bits / 8);
    for (size_t n = 2; n < parts.size(); ++n) {
      if (const size_t less = parts[n].find('<'); less != std::string_view::npos) {
        const std::string name(parts[n].substr(0, less));
        const int count = std::stoi(std::string(parts[n].substr(less + 1)));
        for (int j = 0; j < count; ++j) scopes.back()[name + std::to_string(j)] = new_register(width);
      } else {
        scopes.back()[std::string(parts[n])] = new_register(width);
      }
    }
  }

  Ref operand(std::string_view text, const Type& type) {
    bool negated = false;
    if (text.front() == '!') {
      negated = true;
      text = trim(text.substr(1));
    }
    if (text == "_") return {0, sink, 8, false};
    if (const Ref* r = find_register(text)) {
      Ref result = *r;
      result.negated = negated;
      return result;
    }
    if (text.front() == '%') return special(text);
    const auto width = static_cast<uint8_t>(type.pair ? 4 : type.bits / 8);
    if (text == "WARP_SZ") return constant(32, width);
    if (text.starts_with("0f") || text.starts_with("0F")) {
      const auto bits = static_cast<uint32_t>(std::stoul(std::string(text.substr(2)), nullptr, 16));
      if (type.bits == 64 && type.is_float())
        return constant(std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(bits))), 8);
      return constant(bits, width);
    }
    if (text.starts_with("0d") || text.starts_with("0D")) {
      const uint64_t bits = std::stoull(std::string(text.substr(2)), nullptr, 16);
      if (type.bits == 32) return constant(std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits))), 4);
      return constant(bits, 8);
    }
    if (std::isdigit(static_cast<unsigned char>(text.front())) || text.front() == '-') {
      return constant(parse_integer(text), width == 0 ? 4 : width);
    }
    return constant(symbol(text).first, width);
  }

  static Space space_of(char c) {
    return c == 's' ? Space::shared : c == 'l' ? Space::local : c == 'p' ? Space::param : Space::global;
  }

  void address(Instruction& i, std::string_view text, bool& is_local_param) {
    text = trim(text.substr(1, text.size() - 2));
    size_t plus = text.find_first_of("+-", 1);
    std::string_view base = trim(text.substr(0, plus));
    if (plus != std::string_view::npos) {
      std::string_view rest = text.substr(plus);
      if (rest.front() == '+') rest.remove_prefix(1);
      i.offset = static_cast<int64_t>(parse_integer(trim(rest)));
    }
    if (const Ref* r = find_register(base)) {
      i.base = *r;
    } else if (std::isdigit(static_cast<unsigned char>(base.front()))) {
      i.offset += static_cast<int64_t>(parse_integer(base));
    } else {
      const auto [value, space] = symbol(base);
      i.offset += static_cast<int64_t>(value);
      is_local_param = space == 'l';
      if (i.space == Space::generic && space != 'g') throw Error("a generic access to a symbol: " + i.text);
    }
  }

  // ".loc 1 23 4", or ".loc 1 23 4, function_name $L__info_string0, inlined_at 1 34 5"
  void locate(std::string_view text) {
    const auto parts = words(text);
    const auto line = [&](size_t n) {
      return Line{static_cast<unsigned>(parse_integer(parts.at(n))),
                  static_cast<unsigned>(parse_integer(parts.at(n + 1)))};
    };
    here = line(1);
    const auto inlined = std::find(parts.begin(), parts.end(), "inlined_at");
    inlined_at = inlined == parts.end() ? Line{} : line(static_cast<size_t>(inlined - parts.begin()) + 1);
  }

  void statement(std::string_view text) {
    Instruction i;
    i.line = here;
    i.inlined_at = inlined_at;
    i.text = std::string(text);
    for (char& c : i.text) {
      if (std::isspace(static_cast<unsigned char>(c))) c = ' ';
    }
    if (text.front() == '@') {
      size_t end = 1;
      while (!std::isspace(static_cast<unsigned char>(text[end]))) ++end;
      i.guard = operand(text.substr(1, end - 1), {'p'});
      text = trim(text.substr(end));
    }
    size_t end = 0;
    while (end < text.size() && is_word(text[end])) ++end;
    const Modifiers parts = split(text.substr(0, end), '.');
    std::string_view rest = trim(text.substr(end));
    const std::string_view name = parts[0];
    if (name == "call") {
      i.call = std::string(rest);
      call(i, rest);
      choose(i, parts);
      k.code.push_back(std::move(i));
      return;
    }
    std::vector<Type> types;
    for (size_t n = 1; n < parts.size(); ++n) {
      if (Type t; parse_type(parts[n], t)) types.push_back(t);
      i.is_constant |= parts[n] == "const";
      if (parts[n] == "global" || i.is_constant) i.space = Space::global;
      if (parts[n].starts_with("shared")) i.space = Space::shared;
      if (parts[n] == "local") i.space = Space::local;
      if (parts[n].starts_with("param")) i.space = Space::param;
      if (parts[n] == "v2") i.count = 2;
      if (parts[n] == "v4") i.count = 4;
      if (parts[n] == "v8") i.count = 8;
    }
    const Type type = types.empty() ? Type{'b', 32} : types[0];
    auto operands = split(rest, ',');

    if (name == "mov" && operands.at(0) == "emulator_bytes") {  // after emulator_slice or emulator_forget
      i.src[0] = mark;
      i.src[1] = operand(operands.at(1), type);
      i.srcs = 2;
      choose(i, {mark_name});
      k.code.push_back(std::move(i));
      return;
    }
    if (name == "bra") {
      branches.emplace_back(k.code.size(), std::string(operands.at(0)));
    } else if (name == "ld" || name == "ldu" || name == "st" || name == "atom" || name == "red" ||
               name.starts_with("prefetch")) {
      bool is_local_param = false;
      // The operands of a load or atomic before the address are destinations.
      bool is_destination = name == "ld" || name == "ldu" || name == "atom";
      for (const auto o : operands) {
        if (o.front() == '[') {
          address(i, o, is_local_param);
          is_destination = false;
        } else if (o.front() == '{') {
          for (const auto e : split(o.substr(1, o.size() - 2), ',')) add(i, operand(e, type), is_destination);
        } else {
          add(i, operand(o, type), is_destination);
        }
      }
      if (is_local_param) i.space = Space::local;
    } else if (name == "barrier" || (name == "bar" && std::find(parts.begin(), parts.end(), "warp") == parts.end())) {
      const bool reduces = std::find(parts.begin(), parts.end(), "red") != parts.end();
      for (size_t n = 0; n < operands.size(); ++n) add(i, operand(operands[n], {'u', 32}), reduces && n == 0);
    } else {
      const bool has_destination = !(name == "membar" || name == "fence" || name == "nanosleep" || name == "ret" ||
                                     name == "exit" || name == "trap" || name == "griddepcontrol" || name == "bar");
      for (size_t n = 0; n < operands.size(); ++n) {
        const std::string_view o = operands[n];
        const bool is_dst = n == 0 && has_destination;
        if (is_dst && o.find('|') != std::string_view::npos) {
          i.dst[i.dsts++] = operand(trim(o.substr(0, o.find('|'))), type);
          i.dst[i.dsts++] = operand(trim(o.substr(o.find('|') + 1)), type);
        } else if (o.front() == '{') {
          const auto elements = split(o.substr(1, o.size() - 2), ',');
          const Type element{'b', type.bits / static_cast<int>(elements.size())};
          for (const auto e : elements) add(i, operand(e, element), is_dst);
        } else {
          add(i, operand(o, operand_type(name, parts, types, n)), is_dst);
        }
      }
      if (name == "mov" && i.srcs == 1 && i.dsts == 1 && i.dst[0].index == sink) i.dst[0].width = i.src[0].width;
      if ((name.starts_with("add") || name.starts_with("sub")) &&
          (name.size() == 4 || std::find(parts.begin(), parts.end(), "cc") != parts.end())) {
        if (carry.index < 0) carry = new_register(0);
        if (name.size() == 4) i.src[i.srcs++] = carry;
        if (std::find(parts.begin(), parts.end(), "cc") != parts.end()) i.dst[i.dsts++] = carry;
      }
      if (name == "cvta") {
        i.space = std::find(parts.begin(), parts.end(), "shared") != parts.end()  ? Space::shared
                  : std::find(parts.begin(), parts.end(), "local") != parts.end() ? Space::local
                  : std::find(parts.begin(), parts.end(), "param") != parts.end() ? Space::param
                                                                                  : Space::global;
      }
    }
    if (name == "mov" && operands.at(0).starts_with("emulator_")) {
      mark_name = operands.at(0).substr(9);
      mark = i.dst[0];
    }
    choose(i, parts);
    if (contracts(i, parts)) return;
    k.code.push_back(std::move(i));
    if (name == "bar" || name == "barrier") leave_out(k.code.back());
  }

  // Makes a barrier do nothing if $CPPCUDA_EMULATOR_WITHOUT names its line.
  void leave_out(Instruction& i) const {
    const char* without = std::getenv("CPPCUDA_EMULATOR_WITHOUT");
    if (!without || (place_of(k, i) + " ").find(without + std::string(" ")) == std::string::npos) return;
    i.kind = Kind::normal;
    i.srcs = 0;
    choose(i, {"membar"});
  }

  static void add(Instruction& i, const Ref& r, bool is_destination) {
    if (is_destination) {
      if (i.dsts == 8) throw Error("too many operands: " + i.text);
      i.dst[i.dsts++] = r;
    } else {
      if (i.srcs == 12) throw Error("too many operands: " + i.text);
      i.src[i.srcs++] = r;
    }
  }

  // The type of operand n, which matters if it is a number.
  static Type operand_type(std::string_view name, const Modifiers& parts, const std::vector<Type>& types, size_t n) {
    const Type u32{'u', 32};
    if (types.empty()) return u32;
    if ((name == "shl" || name == "shr") && n == 2) return u32;
    if ((name == "bfe" && n >= 2) || (name == "bfi" && n >= 3)) return u32;
    if (name == "cvt" && n > 0) return types.back();
    if ((name == "mul" || name == "mad") && std::find(parts.begin(), parts.end(), "wide") != parts.end()) {
      if (n == 0 || n == 3) return {types[0].kind, 2 * types[0].bits};
    }
    if (name == "shfl" || name == "vote" || name == "match" || name == "redux") return u32;
    return types[0];
  }

  void call(Instruction& i, std::string_view text) {
    for (const auto o : split(text, ',')) {
      if (o.front() != '(') {
        if (find_register(o)) throw Error("an indirect call: " + i.text);
        i.call = std::string(o);
      } else if (!i.call.empty()) {
        for (const auto p : split(o.substr(1, o.size() - 2), ',')) {
          if (const auto it = symbols.find(std::string(p)); it != symbols.end() && it->second.second == 'l') {
            i.src[i.srcs++] = constant(it->second.first, 8);  // offsets in local memory
          }
        }
      }
    }
    if (i.call.find("__assert") == std::string::npos)
      throw Error("the emulator runs no calls of functions, such as printf: " + i.text);
  }

  // With Options::contract, makes an fma of an addition and the multiplication before it, whose result nothing else may
  // read: it is left in place. Only registers that are written once are replaced.
  std::unordered_map<int, size_t> products;  // by destination: the instruction
  bool contracts(Instruction& i, const Modifiers& parts) {
    if (!options().contract || !i.type.is_float() || parts.size() != 2 || i.type.pair || i.type.bits < 32) return false;
    if (parts[0] == "mul") {
      products[i.dst[0].index] = k.code.size();
      return false;
    }
    if (parts[0] != "add" && parts[0] != "sub") return false;
    for (int s = 0; s < 2; ++s) {
      const auto it = products.find(i.src[s].index);
      if (it == products.end()) continue;
      const Instruction& product = k.code[it->second];
      bool changed = false;  // since the product
      for (size_t n = it->second; n < k.code.size(); ++n) {
        for (int d = 0; d < k.code[n].dsts; ++d) {
          const int index = k.code[n].dst[d].index;
          changed |= index == product.src[0].index || index == product.src[1].index ||
                     (n > it->second && index == product.dst[0].index);
        }
        changed |= n > it->second && k.code[n].kind != Kind::normal;
      }
      if (changed || product.guard.index >= 0) continue;
      Instruction f = i;
      const bool subtract = parts[0] == "sub";
      Ref a = product.src[0];
      Ref other = i.src[1 - s];
      // a b - c = a b + (-c) and c - a b = c + (-a) b, with a negation that needs a register.
      if (subtract) {
        Instruction negation;
        negation.type = i.type;
        negation.guard = i.guard;
        negation.src[0] = s == 0 ? other : a;
        negation.dst[0] = new_register(i.dst[0].width);
        negation.srcs = negation.dsts = 1;
        negation.text = "neg (contracted) " + i.text;
        choose(negation, {"neg", parts[1]});
        (s == 0 ? other : a) = negation.dst[0];
        k.code.push_back(std::move(negation));
      }
      f.src[0] = a;
      f.src[1] = product.src[1];
      f.src[2] = other;
      f.srcs = 3;
      f.text = "fma (contracted) " + i.text;
      choose(f, {"fma", "rn", parts[1]});
      k.code.push_back(std::move(f));
      return true;
    }
    return false;
  }

  void parse_declaration() {
    std::string_view text = k.declaration;
    const size_t open = text.find('('), brace = text.size();
    size_t end = brace;
    if (open != std::string_view::npos) {
      end = close(text, open, '(', ')');
      size_t offset = 0;
      for (const auto p : split(text.substr(open + 1, end - open - 2), ',')) {
        const Variable v = parse_variable(p);
        offset = align_up(offset, v.align);
        k.parameters.push_back({v.name, static_cast<uint32_t>(offset), static_cast<uint32_t>(v.bytes)});
        symbols[v.name] = {offset, 'p'};
        offset += v.bytes;
      }
      k.info.param_bytes = offset;
    }
    const auto parts = words(end < text.size() ? text.substr(end) : std::string_view());
    for (size_t n = 0; n + 1 < parts.size(); ++n) {
      if (parts[n] != ".maxntid" && parts[n] != ".reqntid") continue;
      k.info.max_threads = 1;
      for (size_t d = n + 1; d < parts.size() && std::isdigit(static_cast<unsigned char>(parts[d][0])); ++d) {
        k.info.max_threads *= static_cast<unsigned>(std::stoul(std::string(parts[d])));
      }
    }
  }

  void run() {
    parse_declaration();
    const std::string_view text = k.body;
    size_t at = 1;
    const auto place_shared = [&](const Variable& v) {
      shared = align_up(shared, v.align);
      symbols[v.name] = {shared, 's'};
      shared += v.bytes;
    };
    for (const std::string& declaration : k.module->shared_) {
      if (const Variable v = parse_variable(declaration); text.find(v.name) != std::string_view::npos) place_shared(v);
    }
    // Static shared memory, so that the place of dynamic shared memory is known.
    k.info.static_shared = shared;
    for (size_t p = text.find(".shared .align"); p != std::string_view::npos; p = text.find(".shared .align", p + 1)) {
      const Variable v = parse_variable(text.substr(p + 7, text.find(';', p) - p - 7));
      k.info.static_shared = align_up(k.info.static_shared, v.align) + v.bytes;
    }
    while (true) {
      skip_space(text, at);
      if (at >= text.size()) throw Error("the body of " + k.name + " has no end");
      if (text[at] == '{') {
        scopes.emplace_back();
        ++at;
        continue;
      }
      if (text[at] == '}') {
        scopes.pop_back();
        ++at;
        if (scopes.empty()) break;
        continue;
      }
      size_t end = at;
      while (is_word(text[end])) ++end;
      size_t after = end;
      skip_space(text, after);
      if (text[after] == ':' && text[at] != '@') {
        labels[std::string(text.substr(at, end - at))] = static_cast<int>(k.code.size());
        products.clear();
        at = after + 1;
        continue;
      }
      if (text.substr(at).starts_with(".loc") && !text.substr(at).starts_with(".local")) {
        const size_t end_of_line = text.find('\n', at);
        locate(text.substr(at, end_of_line - at));
        at = end_of_line;
        continue;
      }
      end = text.find(';', at);
      if (end == std::string_view::npos) throw Error("a statement has no end");
      const std::string_view line = trim(text.substr(at, end - at));
      at = end + 1;
      if (line.starts_with(".reg")) {
        declare(line);
      } else if (line.starts_with(".local") || line.starts_with(".param")) {
        const Variable v = parse_variable(line.substr(6));
        local = align_up(local, std::max<size_t>(v.align, 1));
        symbols[v.name] = {local, 'l'};
        local += v.bytes;
      } else if (line.starts_with(".shared")) {
        place_shared(parse_variable(line.substr(7)));
      } else if (line.starts_with(".pragma")) {
      } else if (line.starts_with(".")) {
        throw Error("unknown directive: " + std::string(line));
      } else {
        statement(line);
      }
    }
    for (const auto& [instruction, label] : branches) {
      const auto it = labels.find(label);
      if (it == labels.end()) throw Error("no label " + label);
      k.code[instruction].target = it->second;
    }
    Instruction end;
    end.kind = Kind::exit;
    end.text = "(end)";
    k.code.push_back(end);
    k.info.local = align_up(local, 16);
    k.register_bytes = static_cast<uint32_t>(align_up(k.register_bytes, 64));
  }
};

void Kernel::parse() {
  if (parsed) return;
  try {
    Parser(*this).run();
  } catch (const std::exception& e) {
    throw Error(readable_name(name) + ": " + e.what());
  }
  parsed = true;
}

Module::Module(std::string text) : text_(std::move(text)) {
  const std::string_view all = text_;
  size_t at = 0;
  while (true) {
    skip_space(all, at);
    if (at >= all.size()) break;
    const size_t end_of_line = std::min(all.find('\n', at), all.size());
    const std::string_view rest = all.substr(at);
    if (rest.starts_with(".version") || rest.starts_with(".address_size") || rest.starts_with(".target")) {
      at = end_of_line;
      continue;
    }
    if (rest.starts_with(".file")) {  // .file 1 "path"
      const std::string_view line = all.substr(at, end_of_line - at);
      const size_t quote = line.find('"');
      files_[static_cast<unsigned>(parse_integer(words(line).at(1)))] =
          std::string(line.substr(quote + 1, line.rfind('"') - quote - 1));
      at = end_of_line;
      continue;
    }
    if (rest.starts_with(".section")) {  // the names of inlined functions
      at = close(all, all.find('{', at), '{', '}');
      continue;
    }
    const size_t semicolon = std::min(all.find(';', at), all.size()), brace = std::min(all.find('{', at), all.size());
    const std::string_view head = all.substr(at, std::min(semicolon, brace) - at);
    if (head.find(".entry") != std::string_view::npos || head.find(".func") != std::string_view::npos) {
      if (semicolon < brace) {  // a declaration
        at = semicolon + 1;
        continue;
      }
      const size_t end = close(all, brace, '{', '}');
      if (const size_t entry = head.find(".entry"); entry != std::string_view::npos) {
        auto kernel = std::make_unique<Kernel>();
        std::string_view declaration = trim(head.substr(entry + 6));
        size_t n = 0;
        while (n < declaration.size() && is_word(declaration[n])) ++n;
        kernel->module = this;
        kernel->name = std::string(declaration.substr(0, n));
        kernel->declaration = declaration.substr(n);
        kernel->body = all.substr(brace, end - brace);
        kernels_[kernel->name] = std::move(kernel);
      }
      at = end;
      continue;
    }
    // A variable, maybe with values: ".global .align 1 .b8 name[3] = {1, 2, 3};"
    std::string_view line = all.substr(at, semicolon - at);
    at = semicolon + 1;
    const bool is_extern = line.find(".extern") != std::string_view::npos;
    std::string_view declaration = line.substr(0, line.find('='));
    const size_t global = declaration.find(".global"), constant = declaration.find(".const"),
                 shared = declaration.find(".shared");
    if (shared != std::string_view::npos) {
      declaration = declaration.substr(shared + 7);
      if (is_extern) {
        symbols_[parse_variable(declaration).name] = {0, 'x'};
      } else {
        shared_.emplace_back(declaration);
      }
      continue;
    }
    if (global == std::string_view::npos && constant == std::string_view::npos)
      throw Error("not understood: " + std::string(line));
    const Variable v = parse_variable(declaration.substr(global != std::string_view::npos ? global + 7 : constant + 6));
    // Modules live as long as the program.
    auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(64, align_up(v.bytes + 1, 64)));
    std::memset(memory, 0, v.bytes);
    if (const size_t equals = line.find('='); equals != std::string_view::npos) {
      std::string_view values = trim(line.substr(equals + 1));
      if (values.front() == '{') values = values.substr(1, values.size() - 2);
      const auto numbers = split(values, ',');
      const size_t element = numbers.empty() ? 1 : v.bytes / std::max<size_t>(1, numbers.size());
      const bool bytes =
          declaration.find(".b8") != std::string_view::npos || declaration.find(".u8") != std::string_view::npos;
      for (size_t n = 0; n < numbers.size(); ++n) {
        const uint64_t value = parse_integer(numbers[n]);
        const size_t size = bytes ? 1 : element;
        std::memcpy(memory + n * size, &value, std::min<size_t>(size, 8));
      }
    }
    add_range(memory, v.bytes, "the variable " + v.name);
    symbols_[v.name] = {reinterpret_cast<uint64_t>(memory), 'g'};
  }
}

Module::~Module() = default;

std::string Module::file(unsigned number) const {
  const auto found = files_.find(number);
  return found == files_.end() ? "" : found->second;
}

Kernel* Module::find(const std::string& name) {
  const auto it = kernels_.find(name);
  return it == kernels_.end() ? nullptr : it->second.get();
}

}  // namespace cppcuda::emulator
