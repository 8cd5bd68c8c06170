# The Vulkan headers: those of the system where they are new enough, else Khronos's own, fetched by commit.

set(least 1.3.239)
set(commit 2bb0a23104ceffd9a28d5b7401f2cee7dae35bb8)  # "Update for Vulkan-Docs 1.3.239"
set(DMLVK_VULKAN_HEADERS_URL "https://github.com/KhronosGroup/Vulkan-Headers.git" CACHE STRING
    "Where the Vulkan headers are fetched from when the system has none")

# Sets ${variable} to the version of the headers in a folder, 0 where there is none.
function(dmlvk_header_version variable folder)
  set(version 0)
  if(EXISTS "${folder}/vulkan/vulkan_core.h")
    file(STRINGS "${folder}/vulkan/vulkan_core.h" lines REGEX "^#define VK_HEADER_VERSION")
    if(lines MATCHES "VK_HEADER_VERSION ([0-9]+)")
      set(patch ${CMAKE_MATCH_1})
      if(lines MATCHES "VK_MAKE_API_VERSION\\(0, ([0-9]+), ([0-9]+), VK_HEADER_VERSION\\)")
        set(version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${patch})
      endif()
    endif()
  endif()
  set(${variable} ${version} PARENT_SCOPE)
endfunction()

# Sets ${variable} to the folder in which vulkan/vulkan.hpp lies.
function(dmlvk_vulkan_headers variable)
  find_path(DMLVK_VULKAN_INCLUDE vulkan/vulkan.hpp HINTS "$ENV{VULKAN_SDK}/include"
            DOC "Folder of the Vulkan headers, ${least} or newer")
  dmlvk_header_version(version "${DMLVK_VULKAN_INCLUDE}")
  if(NOT version VERSION_LESS least)
    set(${variable} "${DMLVK_VULKAN_INCLUDE}" PARENT_SCOPE)
    return()
  endif()

  set(fetched "${CMAKE_BINARY_DIR}/vulkan-headers")
  dmlvk_header_version(version "${fetched}/include")
  if(NOT version VERSION_EQUAL least)
    message(STATUS "No Vulkan headers ${least} or newer here: fetching them")
    find_package(Git REQUIRED)
    file(REMOVE_RECURSE "${fetched}")
    # A commit is the digest of what it names.
    foreach(arguments "init;--quiet;${fetched}"
                      "-C;${fetched};fetch;--quiet;--depth;1;${DMLVK_VULKAN_HEADERS_URL};${commit}"
                      "-C;${fetched};checkout;--quiet;${commit}")
      execute_process(COMMAND "${GIT_EXECUTABLE}" ${arguments} RESULT_VARIABLE failed)
      if(failed)
        message(FATAL_ERROR "The Vulkan headers could not be fetched. Install ${least} or newer, and pass their folder: "
                            "-DDMLVK_VULKAN_INCLUDE=FOLDER")
      endif()
    endforeach()
  endif()
  set(${variable} "${fetched}/include" PARENT_SCOPE)
endfunction()
