"""The plots package."""
