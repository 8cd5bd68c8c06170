"""The family recurrent: manifest rows, rules, lowering."""
