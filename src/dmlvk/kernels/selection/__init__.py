"""The family selection: manifest rows, lowering."""
