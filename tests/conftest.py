"""The examples of property-based tests follow from the tests alone, so that a run can be repeated.

`pytest --hypothesis-profile default` draws others.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
