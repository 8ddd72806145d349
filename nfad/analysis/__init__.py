"""The paper's measurements, one question a file."""
