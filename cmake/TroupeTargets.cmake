# Warnings and sanitizers as targets, and one function for a leaf.
include(GNUInstallDirs)

add_library(troupe_build_flags INTERFACE)
target_compile_options(troupe_build_flags INTERFACE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers -Wno-restrict
  $<$<BOOL:${TROUPE_WERROR}>:-Werror> $<$<BOOL:${CMAKE_UNITY_BUILD}>:-Wno-subobject-linkage>)
# The compiler first collects garbage when it has taken this much memory (KiB), instead of 128 MiB: a tenth of its time.
target_compile_options(troupe_build_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
if(TROUPE_SANITIZE)
  target_compile_options(troupe_build_flags INTERFACE -fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(troupe_build_flags INTERFACE -fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES undefined)
    # A null pointer that is used ends the program anyway, and casts down are few: their checks would take a quarter of the build.
    target_compile_options(troupe_build_flags INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=null,vptr)
  endif()
endif()

# For code that runs seldom. Functions of one line are inlined, which -Og leaves out: to write each of them out takes the compiler
# longer. Garbage is collected from twice 768 MiB on, which no compilation takes.
add_library(troupe_cold_flags INTERFACE)
target_compile_options(troupe_cold_flags INTERFACE "$<$<CONFIG:Release>:-Og;-finline-small-functions;-finline-functions-called-once>")
if(NOT TROUPE_SANITIZE)
  target_compile_options(troupe_cold_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=786432>)
endif()

# troupe_compile_together(target): many sources at once, where no order of functions matters; fewer with sanitizers, which take more memory.
function(troupe_compile_together target)
  if(TROUPE_SANITIZE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  else()
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 40)
  endif()
endfunction()

# troupe_compile_cold(target): compiles it with the flags for cold code, which take effect only after troupe_build_flags.
function(troupe_compile_cold target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:troupe_cold_flags>)
  troupe_compile_together(${target})
endfunction()

# troupe_compile_control(target): for code that runs in every step or for every message, but has no loop over numbers, for which
# -O3 takes the compiler half as long again.
function(troupe_compile_control target)
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O1;-finline-small-functions>")
endfunction()

# troupe_add_part(name part SOURCES ... LIBS ...): a part of library NAME with flags of its own. It is an object library, since CMake
# compiles sources with flags of their own one by one.
function(troupe_add_part name part)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBS")
  set(target troupe_${name}_${part})
  add_library(${target} OBJECT ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE troupe_build_flags ${arg_LIBS})
  target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:troupe_${name},COMPILE_DEFINITIONS>)
  target_sources(troupe_${name} PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# troupe_add_library(name [INTERNAL] [COLD|CONTROL] HEADERS public... SOURCES private... [COLD_SOURCES private...] [CONTROL_SOURCES private...]
#   PUBLIC targets... PRIVATE targets...)
# makes target troupe_NAME with alias troupe::NAME; what is listed under HEADERS is public, compiles alone and is installed,
# unless the library is INTERNAL: a part of a program that is there to be tested. COLD: it runs once a run, or once a line
# that people read; a third of the time that it takes to compile it for speed would be for nothing. CONTROL: it
# decides what happens next, and leaves loops over numbers to others. COLD_SOURCES, CONTROL_SOURCES: the same for a part of the library's sources.
function(troupe_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INTERNAL;COLD;CONTROL" "" "HEADERS;SOURCES;COLD_SOURCES;CONTROL_SOURCES;PUBLIC;PRIVATE")
  add_library(troupe_${name} STATIC)
  add_library(troupe::${name} ALIAS troupe_${name})
  set_target_properties(troupe_${name} PROPERTIES EXPORT_NAME ${name} VERIFY_INTERFACE_HEADER_SETS ON)
  target_sources(troupe_${name}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS}
    PRIVATE ${arg_SOURCES})
  target_compile_features(troupe_${name} PUBLIC cxx_std_20)
  target_link_libraries(troupe_${name} PUBLIC ${arg_PUBLIC} PRIVATE $<BUILD_INTERFACE:troupe_build_flags> ${arg_PRIVATE})
  if(arg_COLD)
    troupe_compile_cold(troupe_${name})
  endif()
  if(arg_CONTROL)
    troupe_compile_control(troupe_${name})
  endif()
  if(arg_COLD_SOURCES)
    troupe_add_part(${name} cold SOURCES ${arg_COLD_SOURCES} LIBS ${arg_PUBLIC} ${arg_PRIVATE})
    troupe_compile_cold(troupe_${name}_cold)
  endif()
  if(arg_CONTROL_SOURCES)
    troupe_add_part(${name} control SOURCES ${arg_CONTROL_SOURCES} LIBS ${arg_PUBLIC} ${arg_PRIVATE})
    troupe_compile_together(troupe_${name}_control)
    troupe_compile_control(troupe_${name}_control)
  endif()
  if(arg_INTERNAL)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY TROUPE_INSTALLED troupe_${name})
  install(TARGETS troupe_${name} EXPORT troupe
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe COMPONENT development)
endfunction()

# troupe_add_program(name [COLD] SOURCES ... LIBS ...)
function(troupe_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COLD" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE troupe_build_flags ${arg_LIBS})
  # Loading a library takes up to a millisecond: only those that the program uses, not all that its parts could use.
  target_link_options(${name} PRIVATE LINKER:--as-needed)
  if(arg_COLD)
    troupe_compile_cold(${name})
  endif()
endfunction()

# troupe_add_schema(target runtime/wire/name.capnp): code for a Cap'n Proto schema, included as "runtime/wire/name.capnp.h".
function(troupe_add_schema target schema)
  set(CAPNPC_SRC_PREFIX ${PROJECT_SOURCE_DIR})
  set(CAPNPC_OUTPUT_DIR ${PROJECT_BINARY_DIR}/schemas)
  get_filename_component(folder ${schema} DIRECTORY)
  file(MAKE_DIRECTORY ${CAPNPC_OUTPUT_DIR}/${folder})
  capnp_generate_cpp(sources headers ${PROJECT_SOURCE_DIR}/${schema})
  target_sources(${target} PRIVATE ${sources})
  target_include_directories(${target} SYSTEM PRIVATE ${CAPNPC_OUTPUT_DIR})
  target_link_libraries(${target} PRIVATE CapnProto::capnp)
endfunction()
