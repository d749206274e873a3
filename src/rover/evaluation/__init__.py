"""Evaluate: coverage, exact occupancy, the true optimum."""
