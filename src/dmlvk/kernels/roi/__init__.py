"""The family roi: manifest rows, rules, lowering."""
