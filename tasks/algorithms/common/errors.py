"""What training raises where it cannot go on; torch is not imported for it."""


class TrainingError(Exception):
    """Training cannot go on: a reward, a loss or a gradient is not finite.

    The code that counts the steps adds the step's number.
    """
