// Reads calls of operators, a line each, and makes them on the emulator's device. The kernels do not run: the file
// $CPPCUDA_SIMT_LAUNCHES gets their launches, and an empty line after those of forward and after those of backward.
//
//   <forward or backward> <operator> <argument>...         backward: forward, and then backward
//
// An argument is a tensor, such as float32:8x64x128x128:1048576x16384x128x1 with sizes and strides, a list, such as
// [256,256], or a number. The last arguments may be left out, if they have defaults.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<int64_t> numbers(const std::string& text, char separator) {
  std::vector<int64_t> result;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, separator);) result.push_back(std::stoll(number));
  return result;
}

at::ScalarType dtype_of(const std::string& name) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kInt, at::kLong}) {
    if (c10::getDtypeNames(dtype).first == name) return dtype;
  }
  throw std::runtime_error("unknown dtype " + name);
}

at::Tensor tensor(const std::string& text) {
  std::istringstream in(text);
  std::string dtype, sizes, strides;
  std::getline(in, dtype, ':');
  std::getline(in, sizes, ':');
  std::getline(in, strides, ':');
  const auto options = at::device(at::kCUDA).dtype(dtype_of(dtype));
  const at::Tensor t = at::empty_strided(numbers(sizes, 'x'), numbers(strides, 'x'), options);
  if (!t.is_floating_point()) t.zero_();  // indices must be valid
  return t;
}

void call(const std::string& line, std::ofstream& launches) {
  std::istringstream in(line);
  std::string mode, name;
  in >> mode >> name;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  torch::jit::Stack stack;
  for (const auto& argument : op.schema().arguments()) {
    std::string text;
    in >> text;
    if (text.empty()) {
      stack.push_back(*argument.default_value());
    } else if (text.front() == '[') {
      stack.push_back(c10::List<int64_t>(numbers(text.substr(1, text.size() - 2), ',')));
    } else if (argument.type()->kind() == c10::TypeKind::IntType) {
      stack.push_back(int64_t{std::stoll(text)});
    } else if (argument.type()->kind() == c10::TypeKind::FloatType) {
      stack.push_back(std::stod(text));
    } else {
      const at::Tensor t = tensor(text);
      stack.push_back(t.requires_grad_(mode != "forward" && t.is_floating_point()));
    }
  }
  op.callBoxed(stack);
  launches << std::endl;
  if (mode == "forward") return;
  // The engine needs an accelerator of its own. Each operator is one node.
  const auto node = stack.front().toTensor().grad_fn();
  torch::autograd::variable_list grads(node->num_inputs());
  for (const auto& value : stack) {
    const at::Tensor& output = value.toTensor();
    if (output.grad_fn() == node) grads[output.output_nr()] = at::empty_like(output);
  }
  (*node)(std::move(grads));
  launches << std::endl;
}

}  // namespace

int main() {
  const char* file = std::getenv("CPPCUDA_SIMT_LAUNCHES");
  if (!file) {
    std::cerr << "CPPCUDA_SIMT_LAUNCHES is not set\n";
    return 1;
  }
  std::ofstream launches(file, std::ios::app);
  for (std::string line; std::getline(std::cin, line);) call(line, launches);
}
