"""Layouts as text, formulas and figures."""
