"""The family root mean square: manifest rows, rules, lowering."""
