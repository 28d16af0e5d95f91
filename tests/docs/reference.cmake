# The page must be what `rtrun reference` prints, to the letter.
execute_process(COMMAND ${RTRUN} reference OUTPUT_VARIABLE said RESULT_VARIABLE code TIMEOUT 30)
file(READ ${PAGE} written)
if(NOT code EQUAL 0 OR NOT said STREQUAL written)
  message(FATAL_ERROR "${PAGE} is not what the schema says; write it anew: build/release/bin/rtrun reference > docs/app-toml.md")
endif()
