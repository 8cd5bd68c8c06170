"""The family roi_gradient: manifest rows, rules, lowering."""
