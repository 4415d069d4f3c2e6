"""The example project: its handlers run twice without harm, its views enqueue in their transaction, its demo works."""
