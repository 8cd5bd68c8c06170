"""Language models on the GPU."""
