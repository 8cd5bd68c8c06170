"""The family reversal: manifest rows, rules, lowering."""
