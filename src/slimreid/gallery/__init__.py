"""People and vehicles that are known by name: who is this?"""
