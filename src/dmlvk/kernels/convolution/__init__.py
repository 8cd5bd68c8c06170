"""The family convolution: manifest rows, rules, lowering."""
