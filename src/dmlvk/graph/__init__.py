"""Several operators as one: so far the planning of the memory between them."""
