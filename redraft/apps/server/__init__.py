"""The HTTP server: OpenAI's routes and our own, in front of a model process that batches concurrent requests.

The HTTP side does not import torch, and the model process (`worker`, `actions`, `scheduler`) imports only `errors` from
the HTTP side, so each part is imported when it is first used.
"""
