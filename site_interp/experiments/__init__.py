"""Experiments: one question per file, each a configuration and a run that gives a result."""
