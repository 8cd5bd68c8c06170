"""Devices as data: what one can do (capabilities, masks, profiles)."""
