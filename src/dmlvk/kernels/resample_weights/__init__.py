"""The family resample_weights: manifest rows, rules, lowering."""
