"""The family fold: manifest rows, rules, lowering."""
