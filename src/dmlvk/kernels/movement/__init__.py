"""The family movement: lowering."""
