"""Engines that run functions: in this process, or in Spark tasks."""
