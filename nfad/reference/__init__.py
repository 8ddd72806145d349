"""What is expected of a normal token: a student, the nearest normal token, or a linear model."""
