"""Several operators as one: graphs, what makes them cheaper, and the memory between their operators."""
