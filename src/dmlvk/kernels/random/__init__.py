"""The family random: manifest rows, rules, lowering."""
