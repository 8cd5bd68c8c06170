"""The family quantization: manifest rows, rules, lowering."""
