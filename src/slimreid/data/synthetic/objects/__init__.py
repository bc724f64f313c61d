"""The people and vehicles of the synthetic world: identities, shapes, looks, and how they are painted."""
