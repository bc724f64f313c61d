"""Reading what earlier software wrote."""
