"""The family integer: manifest rows, rules, lowering."""
