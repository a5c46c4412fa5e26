"""Experiments: a task and a config make a result with a name."""
