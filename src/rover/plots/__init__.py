"""Pictures, from result files only."""
