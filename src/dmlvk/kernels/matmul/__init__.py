"""The family matmul: manifest rows, rules, lowering."""
