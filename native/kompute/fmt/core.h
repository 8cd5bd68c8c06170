// Kompute includes either name.
#include "format.h"
