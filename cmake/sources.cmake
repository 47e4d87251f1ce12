# Every source of the library: one list per folder, in the order of the layers (docs/tour.md).
set(MT_SOURCES)
foreach(folder base device ops model tokenizer jinja optim ckpt data hub plan settings engine cli)
  set(sources)
  include(src/${folder}/sources.cmake OPTIONAL)
  list(TRANSFORM sources PREPEND src/${folder}/)
  list(APPEND MT_SOURCES ${sources})
endforeach()
