// The Vulkan Memory Allocator, told to find Vulkan's functions at run time as everything else here does.
#pragma once

#include "vk_compat.h"

#define VMA_STATIC_VULKAN_FUNCTIONS 0
#define VMA_DYNAMIC_VULKAN_FUNCTIONS 1
#define VMA_VULKAN_VERSION 1003000
#include <vk_mem_alloc.h>
