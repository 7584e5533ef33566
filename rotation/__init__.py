"""Keeping an archive in shape: follow, rotate, expire and compact."""
