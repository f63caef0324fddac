"""The outcomes package."""
