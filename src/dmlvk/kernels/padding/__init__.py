"""The family padding: manifest rows, rules, lowering."""
