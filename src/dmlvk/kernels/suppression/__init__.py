"""The family suppression: manifest rows, rules, lowering."""
