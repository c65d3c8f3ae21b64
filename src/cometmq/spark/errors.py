"""What is wrong with a machine or an installation on which Spark is to run."""

from cometmq.errors import CometError


class SparkSetupError(CometError):
    """Spark cannot run here: ``fact`` says why, ``next_step`` what to do about it."""

    def __init__(self, fact: str, next_step: str) -> None:
        super().__init__(fact, next_step)
        self.fact = fact
        self.next_step = next_step
