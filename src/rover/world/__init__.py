"""One transition model: what was counted, where it generalises, and plans on it."""
