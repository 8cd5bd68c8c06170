"""The family normalization: manifest rows, rules, lowering."""
