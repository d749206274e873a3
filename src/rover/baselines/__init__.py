"""The agents that ROVER is compared with: explorers, and learners with an intrinsic reward."""
