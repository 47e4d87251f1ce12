# make install: the program, its data and its documentation.
include(GNUInstallDirs)
install(TARGETS megatrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
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
