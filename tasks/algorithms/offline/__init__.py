"""Learning from recorded transitions: losses and loops of the offline-RL flow, and the policies they give."""
