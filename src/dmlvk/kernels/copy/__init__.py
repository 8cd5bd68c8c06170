"""The family copy: manifest rows, rules, lowering."""
