"""Pages and pictures for people."""
