"""Neighbouring small generations become one."""
