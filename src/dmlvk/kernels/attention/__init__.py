"""The family attention: manifest rows, rules, lowering."""
