"""The runs package."""
