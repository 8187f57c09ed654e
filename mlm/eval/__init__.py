"""Evaluation: tasks, their protocols, and the scoring of tokens by a model at any layout."""
