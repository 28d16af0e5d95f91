find_package(GTest REQUIRED)
include(GoogleTest)

# troupe_test_flags(target level): a build of everything is mostly tests, and what takes time in most of them is not their own code.
# With -O0 the compiler takes two thirds of the time that it takes with -O1. Sanitizers keep the level of their preset.
function(troupe_test_flags target level)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  target_link_libraries(${target} PRIVATE troupe_build_flags troupe_test_sanitizers)
endfunction()
# A library, so that it stands behind troupe_build_flags: before those it has no effect.
add_library(troupe_test_sanitizers INTERFACE)
if(TROUPE_SANITIZE MATCHES undefined)
  target_compile_options(troupe_test_sanitizers INTERFACE -fno-sanitize=alignment)
endif()

# What is worth running under a sanitizer, and all that is built for one.
add_custom_target(sanitized_tests)

# What almost every test reads first, which takes the compiler as long as most tests themselves. Compiled once for all of them,
# but not with a compiler cache: it would find nothing that was compiled with these headers in another folder.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  add_library(test_headers OBJECT ${PROJECT_SOURCE_DIR}/tests/support/test_headers.cpp)
  target_link_libraries(test_headers PRIVATE GTest::gmock_main)
  target_precompile_headers(test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>
    <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <variant> <vector>)
  troupe_test_flags(test_headers -O0)
  set_target_properties(test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(test_headers PRIVATE -fPIE)  # as in programs
endif()

# troupe_add_test(name LABEL unit|contract|cluster|fuzz|slow [ONE_THREAD] [GPU] [ARITHMETIC] SOURCES ... LIBS ... [TIMEOUT seconds] [ENVIRONMENT name=value...])
# makes one program of tests; each TEST is a ctest entry of its own. Those of clusters mostly wait for processes, so they run beside
# others; but three programs' at most at once, since they all pin their ranks to the first cores.
# ONE_THREAD: nothing in it is for the thread sanitizer to see. ARITHMETIC: it has loops over many numbers, and would take twice
# the time without optimization; fuzzers are optimized too, since they make as many tries as they can in a second. GPU: it
# includes tests/support/gpu.hpp; here it runs over the stand-in for the driver, with the label gpu too, and tools/bundle takes
# it along.
function(troupe_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ONE_THREAD;GPU;ARITHMETIC" "LABEL;TIMEOUT" "SOURCES;LIBS;ENVIRONMENT")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock_main)
  set(level -O0)
  if(arg_ARITHMETIC OR arg_LABEL STREQUAL fuzz)
    set(level -O1)
  endif()
  troupe_test_flags(${name} ${level})
  if(TARGET test_headers AND (level STREQUAL -O0 OR TROUPE_SANITIZE))  # optimized code cannot use what was made without
    target_precompile_headers(${name} REUSE_FROM test_headers)
  endif()
  # Callers have names where far memory tells who touched it.
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests ENABLE_EXPORTS ON)
  if(arg_LABEL MATCHES "^(unit|contract)$" AND NOT (arg_ONE_THREAD AND TROUPE_SANITIZE STREQUAL "thread"))
    add_dependencies(sanitized_tests ${name})
  endif()
  if(TROUPE_SANITIZE MATCHES address)
    list(APPEND arg_ENVIRONMENT HWLOC_COMPONENTS=-pci)  # libpciaccess keeps memory, and hwloc unloads it with its plugin
  endif()
  set(labels ${arg_LABEL})
  set(no_gpu)
  if(arg_GPU)
    list(APPEND labels gpu)
    list(APPEND arg_ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/cuda_host XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/cache
      TROUPE_CUDA_HOST_PREPARED=troupe_wait)  # on a GPU a test that takes memory while a stream waits may wait for that stream
    set(no_gpu FAIL_REGULAR_EXPRESSION "skipped: no GPU")  # the stand-in is always there
    add_dependencies(${name} cublaslt_host cuda_host cuda_calls cudnn_host)
    set_property(GLOBAL APPEND PROPERTY TROUPE_GPU_TESTS ${name})
  endif()
  list(LENGTH arg_ENVIRONMENT variables)
  set(words LABELS ${arg_LABEL})
  if(variables EQUAL 1)
    list(APPEND words ENVIRONMENT ${arg_ENVIRONMENT})
  endif()
  if(arg_LABEL STREQUAL cluster)
    get_property(programs GLOBAL PROPERTY TROUPE_CLUSTER_PROGRAMS)
    set_property(GLOBAL APPEND PROPERTY TROUPE_CLUSTER_PROGRAMS ${name})
    list(LENGTH programs count)
    math(EXPR place "${count} % 3")
    list(APPEND words RESOURCE_LOCK cores_${place})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${words} TIMEOUT ${arg_TIMEOUT} ${no_gpu})
  if(NOT arg_GPU AND variables LESS 2)
    return()
  endif()
  # gtest_discover_tests takes lists apart, so ctest reads those from a file of their own.
  set(lists ${CMAKE_CURRENT_BINARY_DIR}/${name}_lists.cmake)
  file(CONFIGURE OUTPUT ${lists} @ONLY CONTENT [[
foreach(test IN LISTS @name@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@labels@" ENVIRONMENT "@arg_ENVIRONMENT@")
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${lists})
endfunction()
