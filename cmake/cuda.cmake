# The CUDA device, where nvcc is: its objects go into the library, so that there is one library either way.
# MT_CUDA=AUTO takes what is there, ON insists, OFF leaves it out.  MT_CUDA_ARCH: native, numbers, or 'all' for packages.
set(MT_HAVE_CUDA 0 CACHE INTERNAL "the CUDA device is built")
if(MT_CUDA STREQUAL "OFF" OR MT_SANITIZE)
  return()
endif()

include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(MT_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  if(MT_NVCC)
    set(CMAKE_CUDA_COMPILER ${MT_NVCC})
  endif()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(MT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MT_CUDA=ON and no nvcc: install the CUDA toolkit, 12.4 or newer, or set CMAKE_CUDA_COMPILER")
  endif()
  message(STATUS "CUDA: no nvcc, built for the CPU only")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES OFF) # MT_CUDA_ARCH decides, below
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12.4)
if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cublasLt)
  if(MT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MT_CUDA=ON needs the CUDA toolkit, 12.4 or newer, with cuBLAS")
  endif()
  message(STATUS "CUDA: toolkit older than 12.4 or without cuBLAS, built for the CPU only")
  return()
endif()

# This machine's GPUs, as far as the toolkit knows them; Hopper's where there are none, whose PTX later ones compile for themselves.
function(native_archs out)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE status)
  string(REGEX MATCHALL "[0-9]+[.][0-9]" found "${said}")
  list(TRANSFORM found REPLACE "[.]" "")
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  foreach(arch IN LISTS found)
    if(arch LESS 80 OR NOT known MATCHES "compute_${arch}\n") # older than the kernels ask for, or newer than the toolkit
      list(REMOVE_ITEM found ${arch})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  list(SORT found COMPARE NATURAL)
  if(status OR NOT found)
    set(found 90)
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# 'all': machine code for what the toolkit knows, and PTX of the last for what comes later.
set(archs ${MT_CUDA_ARCH})
if(MT_CUDA_ARCH STREQUAL "native")
  native_archs(archs)
elseif(MT_CUDA_ARCH STREQUAL "all")
  set(archs 80 86 89 90)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND archs 100 120)
  endif()
endif()
list(TRANSFORM archs REPLACE "^90$" "90a" OUTPUT_VARIABLE cuda_archs) # every Hopper has 90a's warpgroup products
list(TRANSFORM cuda_archs APPEND -real)
list(GET archs -1 newest)
list(APPEND cuda_archs ${newest}-virtual)

# One object per file; only these see CUDA's headers.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/*.cu ${PROJECT_SOURCE_DIR}/src/ops/*.cu
  ${PROJECT_SOURCE_DIR}/src/optim/*.cu)
add_library(mt_cuda OBJECT ${cuda_sources})
set_target_properties(mt_cuda PROPERTIES CUDA_ARCHITECTURES "${cuda_archs}" CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
target_include_directories(mt_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(mt_cuda PRIVATE -Xcompiler=-Wall,-fno-exceptions,-fno-rtti -lineinfo)
target_link_libraries(mt_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt)

# cuDNN's headers are all that building asks for: the library is loaded when it is wanted (ops/cudnn_graph.c).
find_path(MT_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(MT_CUDNN_INCLUDE)
  target_sources(mt PRIVATE src/ops/cudnn_graph.c src/ops/attention_cudnn.c)
  target_include_directories(mt SYSTEM PRIVATE ${MT_CUDNN_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(mt PUBLIC ${CMAKE_DL_LIBS})
else()
  target_sources(mt PRIVATE src/ops/attention_no_cudnn.c)
  message(STATUS "CUDA: no cudnn.h, attention by our own kernels only")
endif()

# Named as needed: the C side knows them as weak symbols, which pull nothing out of an archive.  A program with the property
# MT_NO_CUDA does without: the kernels are 40 MB, and most tests never call one.
target_sources(mt PRIVATE $<TARGET_OBJECTS:mt_cuda>)
set_target_properties(mt PROPERTIES CUDA_ARCHITECTURES OFF) # it has none of its own
set(with_cuda $<NOT:$<BOOL:$<TARGET_PROPERTY:MT_NO_CUDA>>>)
target_link_options(mt INTERFACE "$<${with_cuda}:LINKER:--undefined=mt_device_cuda>" "$<${with_cuda}:LINKER:--undefined=mt_ops_cuda>")
target_link_libraries(mt PUBLIC CUDA::cudart_static CUDA::cublasLt)
set(MT_HAVE_CUDA 1 CACHE INTERNAL "the CUDA device is built")
message(STATUS "CUDA: ${CUDAToolkit_VERSION}, architectures ${archs}")
