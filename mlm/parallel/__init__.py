"""The paper: layers and losses split over ranks, and the few collectives that make the split exact.

Knows nothing of transformers, configurations or files. With `Axis.single()` every layer here is the
ordinary single-device layer.
"""
