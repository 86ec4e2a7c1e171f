"""Tests of events in Spark."""
