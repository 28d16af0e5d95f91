# The page must be what `rtrun reference TOPIC` prints, to the letter.
execute_process(COMMAND ${RTRUN} reference ${TOPIC} OUTPUT_VARIABLE said RESULT_VARIABLE code TIMEOUT 30)
file(READ ${PAGE} written)
if(NOT code EQUAL 0 OR NOT said STREQUAL written)
  message(FATAL_ERROR "${PAGE} is not what the tables say; write it anew: build/release/bin/rtrun reference ${TOPIC} > ${PAGE}")
endif()
