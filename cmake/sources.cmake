# Every source of the library: one list per folder, in the order of the layers (docs/tour.md).
set(MT_SOURCES)
foreach(folder base comm device ops model tokenizer jinja optim ckpt data hub schedule plan settings engine run api page cli)
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
add_custom_target(mt_assets DEPENDS ${CMAKE_BINARY_DIR}/assets.c)
list(APPEND MT_SOURCES ${CMAKE_BINARY_DIR}/assets.c)
