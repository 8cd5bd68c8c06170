"""From a desc to a plan: kernels, the rules that choose them, and the lowering. Pure Python; nothing here needs a GPU."""
