"""The engine behind every door."""
