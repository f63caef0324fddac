"""Bringing other people's records over: one small file each, from their layout to an outcome log.

Invariant: every row is brought over or is an error that names file, line and field; nothing is guessed, and what a
source does not know stays unknown (null). Deliberately absent: fetching anything, and learning from it.
"""
