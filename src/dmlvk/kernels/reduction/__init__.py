"""The family reduction: manifest rows, rules, lowering."""
