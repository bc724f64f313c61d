"""Galleries: enrol people or vehicles, ask who a new sample shows, keep it clean, lose nothing."""
