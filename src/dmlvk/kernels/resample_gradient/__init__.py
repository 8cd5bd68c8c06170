"""The family resample_gradient: manifest rows, rules, lowering."""
