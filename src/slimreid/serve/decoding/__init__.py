"""Images of strangers are decoded in processes of their own, which may die."""
