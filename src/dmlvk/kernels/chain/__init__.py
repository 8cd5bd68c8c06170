"""The family chain: manifest rows, rules, lowering."""
