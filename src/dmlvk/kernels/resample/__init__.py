"""The family resample: manifest rows, rules, lowering."""
