"""Experiments as data: rows of what is run, and reports made from the run folders."""
