"""backbones"""
