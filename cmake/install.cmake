# make install: the program, its data, its documentation, and the library for C programs.
include(GNUInstallDirs)
install(TARGETS megatrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The library: one header, one static archive, and what pkg-config says of them.  A static archive carries no list of what it
# needs, so all of it is in Requires and Libs, not in their .private twins, which only `pkg-config --static` prints.
set(MT_PC_REQUIRES yaml-0.1 oniguruma libutf8proc zlib libzstd liblz4 libcurl openblas)
if(BROTLI_FOUND)
  list(APPEND MT_PC_REQUIRES libbrotlidec)
endif()
set(MT_PC_LIBS ${SNAPPY_LIBRARY} -pthread -lm)
if(MT_HAVE_CUDA) # the device's functions are weak symbols, which pull nothing out of an archive: they are named here
  list(PREPEND MT_PC_LIBS -Wl,--undefined=mt_device_cuda,--undefined=mt_ops_cuda)
  list(APPEND MT_PC_LIBS -L${CUDAToolkit_LIBRARY_DIR} -Wl,-rpath,${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lcublasLt -lstdc++ -ldl -lrt)
endif()
# MPI's object is a weak symbol too and is not named: a program that links the library trains in one process.
if(MT_SANITIZE)
  list(APPEND MT_PC_LIBS -fsanitize=${MT_SANITIZE})
endif()
list(JOIN MT_PC_REQUIRES " " MT_PC_REQUIRES)
list(JOIN MT_PC_LIBS " " MT_PC_LIBS)
file(RELATIVE_PATH MT_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/megatrain.pc.in ${CMAKE_BINARY_DIR}/megatrain.pc @ONLY)
# A component: make package leaves it out.
install(FILES include/megatrain.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(FILES $<TARGET_FILE:mt> DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libmegatrain.a COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/megatrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)

install(FILES LICENSE README.md CONTRIBUTING.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "*.py" EXCLUDE) # where the README's links lead
foreach(folder configs data)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/megatrain/${folder})
  endif()
endforeach()

# The manual page says what --help says, so it is made from it.
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/megatrain.1
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/manual.sh $<TARGET_FILE:megatrain> > ${CMAKE_BINARY_DIR}/megatrain.1
  DEPENDS megatrain ${PROJECT_SOURCE_DIR}/scripts/manual.sh VERBATIM)
add_custom_target(manual ALL DEPENDS ${CMAKE_BINARY_DIR}/megatrain.1)
install(FILES ${CMAKE_BINARY_DIR}/megatrain.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES completions/megatrain.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME megatrain)
install(FILES completions/_megatrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# The last step of an installation: its files, for make uninstall.  A component, so that a package has no such list.
install(CODE [[
  list(JOIN CMAKE_INSTALL_MANIFEST_FILES "\n" files)
  file(WRITE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/megatrain/installed-files.txt" "${files}\n")
]] COMPONENT library)
