"""The explorer: see the plateau and plan a release in the browser, on this machine only.

The server listens on 127.0.0.1 under a random token and sees plans, never data. Every question is
answered by a worker process with a deadline and a memory limit.
"""
