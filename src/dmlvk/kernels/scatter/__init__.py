"""The family scatter: manifest rows, rules, lowering."""
