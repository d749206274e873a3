"""Transfer: the paper's tables and figures of learning tasks from what pretraining left."""
