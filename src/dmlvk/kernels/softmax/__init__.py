"""The family softmax: manifest rows, rules, lowering."""
