"""From a score to a verdict."""
