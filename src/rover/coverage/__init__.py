"""ROVER: collect, represent, estimate, improve."""
