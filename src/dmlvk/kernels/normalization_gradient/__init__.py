"""The family normalization_gradient: manifest rows, rules, lowering."""
