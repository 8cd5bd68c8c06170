"""Architectures of torchvision and transformers as PyTorch's exporters write them: are they right, and how fast?

``python -m dmlvk bench zoo`` exports each architecture with random weights by both exporters, runs the files beside what
PyTorch computed, and keeps a row a file.
"""
