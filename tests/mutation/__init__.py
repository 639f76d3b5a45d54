"""Mutation testing: do the tests notice a changed line?"""
