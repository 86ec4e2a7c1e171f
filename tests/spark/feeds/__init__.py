"""Tests of feeds read in Spark."""
