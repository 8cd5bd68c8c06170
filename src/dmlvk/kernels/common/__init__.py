"""What the families of kernels share: plans, kernel rows, rules, shape arithmetic."""
