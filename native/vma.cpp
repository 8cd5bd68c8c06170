// The one file that compiles the allocator's body.
#define VMA_IMPLEMENTATION
#include "vma.h"
