"""Consumers: who has to have a message before interest and work-queue retention let it go."""

from __future__ import annotations
