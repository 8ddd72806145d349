"""The paper's tables and analyses."""
