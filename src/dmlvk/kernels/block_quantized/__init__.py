"""The family block_quantized: manifest rows, rules, lowering."""
