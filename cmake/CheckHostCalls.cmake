# cmake -DNM=<nm> -DOBJDUMP=<objdump> -P CheckHostCalls.cmake <objects that nvcc compiled>: fails if host code of theirs
# calls a __device__ function.
#
# nvcc reports such a call only in a function that is not a template. Otherwise it compiles the call to exit(1), which ends
# the process without a message. No kernel library has another reason to call exit.
set(wrong "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 5 ${last})
  set(object "${CMAKE_ARGV${i}}")
  execute_process(COMMAND "${NM}" --undefined-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "U exit\n")
    continue()
  endif()
  string(APPEND wrong "\n  ${object}")
  execute_process(COMMAND "${OBJDUMP}" --disassemble --reloc --demangle "${object}" OUTPUT_VARIABLE code ERROR_QUIET)
  string(REPLACE ";" "," code "${code}")
  string(REGEX MATCHALL "\n[0-9a-f]+ <[^\n]+>:|R_[A-Z0-9_]+[ \t]+exit[^a-z_]" places "${code}")
  set(function "")
  foreach(place IN LISTS places)
    if(place MATCHES "^\n[0-9a-f]+ <(.*)>:$")
      set(function "${CMAKE_MATCH_1}")
    elseif(function)
      string(APPEND wrong "\n    in ${function}")
      set(function "")
    endif()
  endforeach()
endforeach()
if(wrong)
  message(FATAL_ERROR "Host code calls a __device__ function, which nvcc compiled to exit(1):${wrong}\n"
                      "Declare what these functions call as CPPCUDA_HOST_DEVICE (cppcuda/kit/math/host_device.h), or call it "
                      "in a kernel.")
endif()
