# Third-party sources that PyPI carries in source distributions, pinned by version and digest.
#
# They come from the folder DMLVK_SDIST_DIR when that is given; otherwise pip, with whatever index it is configured for,
# fetches each once into the build folder.

set(DMLVK_SDIST_DIR "" CACHE PATH "Folder that holds the source distributions; empty: pip download fetches them")

# Sets ${variable} to the unpacked source folder of ${name} ${version}.
function(dmlvk_sdist variable name version sha256)
  set(archive_name "${name}-${version}.tar.gz")
  set(unpacked "${CMAKE_BINARY_DIR}/sdist/${name}-${version}")
  if(DMLVK_SDIST_DIR)
    set(archive "${DMLVK_SDIST_DIR}/${archive_name}")
  else()
    set(archive "${CMAKE_BINARY_DIR}/sdist/${archive_name}")
    if(NOT EXISTS "${archive}")
      message(STATUS "Fetching ${archive_name}")
      execute_process(
        COMMAND "${Python_EXECUTABLE}" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary "${name}"
                --dest "${CMAKE_BINARY_DIR}/sdist" "${name}==${version}"
        RESULT_VARIABLE failed)
      if(failed)
        message(FATAL_ERROR "pip could not fetch ${archive_name}. Put it into a folder and pass -DDMLVK_SDIST_DIR=FOLDER")
      endif()
    endif()
  endif()

  if(NOT EXISTS "${archive}")
    message(FATAL_ERROR "DMLVK_SDIST_DIR has no ${archive_name}")
  endif()
  file(SHA256 "${archive}" digest)
  if(NOT digest STREQUAL sha256)
    message(FATAL_ERROR "${archive} has SHA-256 ${digest}, expected ${sha256}")
  endif()
  if(NOT EXISTS "${unpacked}")
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${CMAKE_BINARY_DIR}/sdist")
  endif()
  set(${variable} "${unpacked}" PARENT_SCOPE)
endfunction()
