"""Maintenance of archives: follow, rotate, expire and compact."""
