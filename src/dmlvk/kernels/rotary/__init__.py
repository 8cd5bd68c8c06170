"""The family rotary: manifest rows, rules, lowering."""
