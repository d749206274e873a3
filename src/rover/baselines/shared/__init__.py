"""What several agents have in common."""
