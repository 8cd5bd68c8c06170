"""The family optimizer: manifest rows, rules, lowering."""
