"""The agents: ROVER's pretraining loop and the policy that it hands over."""
