"""The family pooling_gradient: manifest rows, rules, lowering."""
