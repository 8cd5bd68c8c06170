"""``python -m dmlvk doctor``: what of this machine keeps dmlvk from a device, and the command that mends it."""
