"""Intervals, resampling and conformal quantiles: numpy only."""
