# Several machines, where an MPI is: its one object goes into the library, as CUDA's do.
# MT_MPI=AUTO takes what is there, ON insists, OFF leaves it out.
set(MT_HAVE_MPI 0 CACHE INTERNAL "several machines are built in")
if(MT_MPI STREQUAL "OFF" OR MT_SANITIZE) # MPI's own memory and threads are noise to the sanitizers
  return()
endif()

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS C QUIET)
if(NOT MPI_C_FOUND)
  if(MT_MPI STREQUAL "ON")
    message(FATAL_ERROR "MT_MPI=ON and no MPI: install one (Debian: libopenmpi-dev, openmpi-bin), or set MPI_C_COMPILER")
  endif()
  message(STATUS "MPI: none, built for one machine")
  return()
endif()

target_sources(mt PRIVATE src/comm/comm_mpi.c)
target_link_libraries(mt PUBLIC MPI::MPI_C)
target_link_options(mt INTERFACE LINKER:--undefined=mt__wire_mpi) # known as a weak symbol, which pulls nothing out of an archive
set(MT_HAVE_MPI 1 CACHE INTERNAL "several machines are built in")
message(STATUS "MPI: ${MPI_C_VERSION}, ${MPI_C_LIBRARIES}")
