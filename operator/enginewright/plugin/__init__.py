"""``kubectl optimisedmodel``: what an OptimisedModel does and why, in plain words, and the verbs that people need.

Works with the rights of its caller and needs no operator beside it: everything is read from the object.
"""
