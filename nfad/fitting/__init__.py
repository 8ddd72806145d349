"""The steps of a fit: token cache, nuisance, reference, calibration."""
