"""The family pooling: manifest rows, rules, lowering."""
