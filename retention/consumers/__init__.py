"""Consumers: readers that must receive a message before interest and work-queue retention remove it."""

from __future__ import annotations
