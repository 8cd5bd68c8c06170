"""The family cached attention: rules, lowering; its kernels are those of attention."""
