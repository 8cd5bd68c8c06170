"""The family elementwise_if: manifest rows, lowering."""
