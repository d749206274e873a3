"""The training loop and the folder that a run leaves."""
