"""The family number format: manifest rows, lowering."""
