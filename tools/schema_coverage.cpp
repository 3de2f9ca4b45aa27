// The program of tools/schema_coverage, which reads the schemas from standard input.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "cppcuda/kit/schema.h"

namespace {

struct Share {
  int declared = 0, all = 0;
  double percent() const { return 100.0 * declared / std::max(all, 1); }
};

}  // namespace

int main() {
  std::map<std::string, Share> libraries;
  Share total;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const size_t tab = line.find('\t');
    if (tab == line.npos) {
      std::cerr << "a line needs a library, a tab and a schema, got " << line << "\n";
      return 2;
    }
    const std::string library = line.substr(0, tab), schema = line.substr(tab + 1);
    const auto declaration = cppcuda::kit::detail::parsed<>(schema);
    const bool is_declared = !declaration.mistake.exists();
    for (Share* const share : {&libraries[library], &total}) {
      ++share->all;
      share->declared += is_declared ? 1 : 0;
    }
    if (!is_declared) std::cout << library << ": " << schema << "\n  " << declaration.mistake.text << "\n";
  }
  for (const auto& [library, share] : libraries) {
    std::printf("%4d of %4d (%3.0f %%)  %s\n", share.declared, share.all, share.percent(), library.c_str());
  }
  std::printf("%d of %d schemas (%.0f %%) can be declared\n", total.declared, total.all, total.percent());
  return total.all > 0 ? 0 : 1;
}
