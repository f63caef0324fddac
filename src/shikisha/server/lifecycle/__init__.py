"""The lifecycle package."""
