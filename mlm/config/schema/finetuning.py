"""Tasks with labels (section 5.3, Table 6)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class FinetuneRecipe:
    """Hyperparameters of a task for models of about one size (Table 6)."""

    model: str
    """The size, in the paper's words."""
    parameters: float
    """The same as a number; the row with the nearest one, in proportion, is taken."""
    batch: int
    """train.global_batch_size."""
    lr: float
    """optim.lr."""
    epochs: float
    """finetune.epochs."""


@dataclass(kw_only=True)
class FinetuneConfig:
    """Fine-tuning to a task with labels (section 5.3)."""

    task: str | None = None
    """race, mnli, qqp, squad_v1 or squad_v2; null: no fine-tuning. Decides the objective."""
    train_path: str | None = None
    """The training examples, a file or folder in the task's official layout."""
    dev_path: str | None = None
    """The development examples, by which the best checkpoint is chosen."""
    seq_length: int | None = None
    """Tokens of a sequence at most, what is longer is cut; null: model.seq_length."""
    epochs: float | None = None
    """Passes over the training examples, where train.steps=0; null: those of the recipe."""
    warmup_share: float = 0.06
    """Part of the steps over which the learning rate rises, where optim.warmup_steps=0."""
    recipes: list[FinetuneRecipe] = field(default_factory=list)
    """What lr, batch and epochs are where they are not typed, by the size of the model."""
    recipe: str | None = None
    """Which recipe was taken, for the start-up table; filled in by mlm-train."""
