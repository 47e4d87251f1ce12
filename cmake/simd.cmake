# A file named *_avx2.c, *_avx512.c or *_shani.c is compiled for that instruction set and called only after cpuid says so.
# On other processors it compiles to nothing.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  return()
endif()
foreach(source ${MT_SOURCES})
  if(source MATCHES "_avx512\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
      "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx2;-mfma")
  elseif(source MATCHES "_avx2\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  elseif(source MATCHES "_shani\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-msha;-msse4.1;-mssse3")
  endif()
endforeach()
