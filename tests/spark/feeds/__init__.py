"""Tests of sources read in Spark."""
