"""Coverage-guided fuzzing of every decoder: ``python -m fuzz.run``.

A target takes any bytes, gives them to a family of decoders and checks what comes out. Targets need
nothing but CometMQ and the recordings in ``tests``; only ``fuzz.child`` needs atheris.
"""
