"""The faults of docs/faults.md, each made by a preset and set beside its cure."""
