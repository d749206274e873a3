"""Scripts behind the figures of the pages, run as ``python -m benchmarks.figures.NAME``."""
