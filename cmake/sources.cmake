# Every source of the library: one list per folder, in the order of the layers (docs/tour.md).
set(MT_SOURCES)
foreach(folder base comm device ops optim model tokenizer jinja ckpt data hub schedule plan settings engine run api page cli)
  set(sources)
  include(src/${folder}/sources.cmake OPTIONAL)
  list(TRANSFORM sources PREPEND src/${folder}/)
  list(APPEND MT_SOURCES ${sources})
endforeach()

# The page's files become part of the program.
set(assets ${PROJECT_SOURCE_DIR}/src/page/page.html ${PROJECT_SOURCE_DIR}/src/page/page.css ${PROJECT_SOURCE_DIR}/src/page/page.js)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/assets.c
  COMMAND ${CMAKE_COMMAND} "-DIN=${assets}" -DOUT=${CMAKE_BINARY_DIR}/assets.c -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${assets} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)

# And a hash of all sources that make samples of data: what they made is not used after one of them has changed (src/data/maker.h).
file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  src/base/*.[ch] src/tokenizer/*.[ch] src/jinja/*.[ch] src/data/*.[ch])
list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/sample_code.c
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} "-DFILES=${files}" -DOUT=${CMAKE_BINARY_DIR}/sample_code.c
    -P ${PROJECT_SOURCE_DIR}/cmake/sample_code.cmake
  DEPENDS ${paths} ${PROJECT_SOURCE_DIR}/cmake/sample_code.cmake VERBATIM)

add_custom_target(mt_generated DEPENDS ${CMAKE_BINARY_DIR}/assets.c ${CMAKE_BINARY_DIR}/sample_code.c)
list(APPEND MT_SOURCES ${CMAKE_BINARY_DIR}/assets.c ${CMAKE_BINARY_DIR}/sample_code.c)
