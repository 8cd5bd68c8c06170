"""The family linear attention: manifest rows, rules, lowering."""
