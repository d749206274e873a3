"""What the process says when it ends."""

DONE = 0
FAILED = 1
"""Some runs of a comparison failed; the others are there."""
UNREAD = 1
"""Whatever read the output, such as head, left before its end."""
WRONG_INPUT = 2
INTERRUPTED = 130
"""As shells say of a process that SIGINT ended."""
