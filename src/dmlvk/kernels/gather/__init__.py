"""The family gather: manifest rows, rules, lowering."""
