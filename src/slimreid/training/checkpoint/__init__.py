"""Checkpoints: what they hold, where they are kept, how a run resumes from one."""
