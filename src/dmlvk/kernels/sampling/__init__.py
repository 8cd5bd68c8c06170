"""The family sampling: manifest rows, rules, lowering."""
