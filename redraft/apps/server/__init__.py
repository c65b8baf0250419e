"""The server: OpenAI's routes and our own in front of a model process in which many requests share every pass.

The HTTP side imports no torch, the model process (`worker`, `verbs`, `switchboard`) nothing of the HTTP side: so each
part is imported when it is first used.
"""
