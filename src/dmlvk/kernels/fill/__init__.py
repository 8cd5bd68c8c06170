"""The family fill: manifest rows, rules, lowering."""
