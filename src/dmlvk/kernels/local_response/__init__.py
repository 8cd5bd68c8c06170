"""The family local_response: manifest rows, rules, lowering."""
