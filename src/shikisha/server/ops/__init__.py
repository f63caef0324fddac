"""The ops package."""
