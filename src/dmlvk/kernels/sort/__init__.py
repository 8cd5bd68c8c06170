"""The family sort: manifest rows, rules, lowering."""
