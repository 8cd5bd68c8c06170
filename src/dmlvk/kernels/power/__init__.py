"""The family power: manifest rows, lowering."""
