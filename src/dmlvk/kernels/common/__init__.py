"""The parts that all families of kernels share: plans, kernel rows, rules, shape arithmetic."""
