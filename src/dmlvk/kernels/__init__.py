"""Kernels, the rules that choose them, and the lowering of descs to plans. Pure Python; nothing here needs a GPU."""
