# cmake -DOUTPUT=<header> -P HashHeaders.cmake <headers>: writes the hash of the headers' contents, as a macro.
set(hashes "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 4 ${last})
  file(SHA256 "${CMAKE_ARGV${i}}" hash)
  string(APPEND hashes "${hash}")
endforeach()
string(SHA256 hash "${hashes}")
file(WRITE "${OUTPUT}" "#define CPPCUDA_KERNEL_HEADERS \"${hash}\"\n")
