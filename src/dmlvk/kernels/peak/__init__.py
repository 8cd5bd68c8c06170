"""The family peak: manifest rows."""
