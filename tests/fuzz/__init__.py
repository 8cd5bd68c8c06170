"""Fuzzers: random calls, descs, models, files and orders of work, each ends in the right result or in a typed error.

``PYTHONPATH=src:bench/src:tests python -m fuzz descs --count 1000000`` is a long run; ``test_fuzz.py`` makes short ones.
What was found once stays in ``seeds/``, one line a fault, and is tried by every run of the tests.
"""
