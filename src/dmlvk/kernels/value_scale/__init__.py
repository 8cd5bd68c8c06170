"""The family value_scale: rules, lowering."""
