"""Subscription expressions: compiled and evaluated. Pure; knows neither brokers nor consumers."""
