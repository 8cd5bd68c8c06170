"""The family scan: manifest rows, rules, lowering."""
