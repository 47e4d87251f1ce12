# What the program needs of a machine.  docs/limits.md has what was tried elsewhere.
option(MT_ANY_ORDER "Build on a big-endian machine, to test the readers there" OFF)
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "megatrain needs a 64-bit machine: it maps whole files of weights and multiplies to 128 bits.  This compiler "
    "makes 32-bit code (${CMAKE_SYSTEM_PROCESSOR}).  Use a 64-bit compiler and system.")
endif()
if(CMAKE_C_BYTE_ORDER STREQUAL BIG_ENDIAN AND NOT MT_ANY_ORDER)
  message(FATAL_ERROR "megatrain needs a little-endian machine: the numbers in safetensors and GGUF files are used where they are "
    "mapped.  ${CMAKE_SYSTEM_PROCESSOR} is big-endian.  Train on x86-64 or arm64.")
endif()
