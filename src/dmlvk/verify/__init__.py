"""Verification on a device: every operator held against the float64 oracle, and the accuracy card of what it showed."""
