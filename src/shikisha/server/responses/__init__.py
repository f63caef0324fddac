"""The responses package."""
