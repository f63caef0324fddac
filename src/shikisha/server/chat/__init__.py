"""The chat package."""
