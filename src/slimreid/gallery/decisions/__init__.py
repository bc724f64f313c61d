"""What a gallery decides, as functions of numbers: no files, no database, no model."""
