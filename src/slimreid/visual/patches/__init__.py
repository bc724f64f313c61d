"""Pictures of the patches a model kept."""
