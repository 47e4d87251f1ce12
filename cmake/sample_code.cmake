# cmake -DROOT=dir "-DFILES=a;b" -DOUT=file.c -P sample_code.cmake: a number that changes with every change of the files that make
# samples, for the key of tokenized data.  Only names below ROOT and contents count, not the order, the locale or where ROOT is.
list(SORT FILES COMPARE STRING)
set(listing "")
foreach(file IN LISTS FILES)
  file(SHA256 "${ROOT}/${file}" hash)
  string(APPEND listing "${hash} ${file}\n")
endforeach()
string(SHA256 all "${listing}")
string(SUBSTRING ${all} 0 16 number)
file(WRITE ${OUT} "/* Made by cmake/sample_code.cmake of these files:\n${listing}*/\n#include \"data/maker.h\"\n\nconst uint64_t mt__sample_sources = UINT64_C(0x${number});\n")
