"""The family compaction: manifest rows, rules, lowering."""
