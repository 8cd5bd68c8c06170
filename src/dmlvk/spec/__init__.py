"""The specification: enumerations, errors, tensors and the operators' rows. No numpy, no GPU."""
