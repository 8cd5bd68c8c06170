"""The family elementwise: manifest rows, rules, lowering."""
