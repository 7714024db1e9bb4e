"""Measurements and comparisons, each made by one command."""
