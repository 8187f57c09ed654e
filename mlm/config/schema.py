"""Every field of a command's configuration: its name, type, meaning and source. YAML owns the choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

VERBATIM = {"verbatim": True}
"""Metadata of fields that take any text as it is typed, quotes, commas, blanks and all; of lists: as YAML."""


class Gelu(Enum):
    """Form of the GELU: GPT-2 was trained with the tanh approximation, BERT and nanoGPT with erf."""

    tanh = "tanh"
    erf = "erf"


class LayerNormPlacement(Enum):
    """Where a layer's LayerNorms stand: at the input of each sub-layer, or after its residual addition."""

    pre = "pre"
    post = "post"


class Decay(Enum):
    """How the learning rate falls once it is warm: by half a cosine (GPT-2) or a straight line (BERT)."""

    cosine = "cosine"
    linear = "linear"


@dataclass(kw_only=True)
class ModelConfig:
    """Shape of the transformer; the numbers alone determine the parameter count."""

    name: str
    """Name of the configuration, used in the run directory's name."""
    architecture: str = "gpt2"
    """Row of the table of models (mlm.models.registry)."""
    num_layers: int
    """Transformer layers N."""
    hidden_size: int
    """Width of the residual stream h."""
    num_heads: int
    """Attention heads; split over tp (section 3: whole heads per rank)."""
    ffn_hidden_size: int | None = None
    """Width inside the MLP; null means 4 x hidden_size."""
    seq_length: int
    """Tokens per sample, and rows of the position table."""
    vocab_size: int
    """Tokens that exist: what the loss is normalised over and what is ever generated."""
    padded_vocab_size: int | None = None
    """Rows of the embedding table, a multiple of tp (the paper: 51,200 for 50,257); null: vocab_size."""
    tie_embeddings: bool = True
    """Share the embedding table with the output layer (section 3)."""
    bias: bool = True
    """Biases on linear layers and LayerNorms."""
    gelu: Gelu = Gelu.tanh
    """tanh or erf."""
    layernorm: LayerNormPlacement = LayerNormPlacement.pre
    """pre: at the input of each sub-layer; post: after its residual addition (bert; section 5.3)."""
    segments: int = 0
    """Rows of the table that tells apart the texts of a pair; 2 for bert, 0 for none."""
    layernorm_eps: float = 1e-5
    """Added to the variance in LayerNorm."""
    dropout: float = 0.1
    """On embeddings and before each residual addition (section 4.2)."""
    attention_dropout: float = 0.1
    """On attention probabilities (section 4.2)."""
    init_std: float = 0.02
    """Standard deviation of weights; before a residual addition it is divided by sqrt(2N) (section 4.2)."""


@dataclass(kw_only=True)
class ObjectiveConfig:
    """What the model is trained to do."""

    name: str = "next_token"
    """next_token (gpt2), or masked_lm: BERT's masked tokens and the order of two segments (section 4.3)."""
    mask_rate: float = 0.15
    """Share of a sample's tokens that masked_lm predicts."""
    max_ngram: int = 3
    """Longest run of whole words masked at once: n up to this, drawn in proportion to 1/n (section 4.3)."""
    mask_share: float = 0.8
    """Of the predicted tokens, the share that [MASK] stands in for."""
    random_share: float = 0.1
    """The share replaced by a random token; the others stay as they are."""


@dataclass(kw_only=True)
class TokenizerConfig:
    """How text becomes token ids."""

    kind: str
    """gpt2, sentencepiece, char, byte, wordpiece or hf."""
    path: str | None = None
    """SentencePiece's .model, a folder of vocab.json and merges.txt (gpt2), a vocab.txt (wordpiece) or a
    tokenizer.json (hf); null: the shipped files of GPT-2 or BERT (uncased), or a SentencePiece model trained
    at first use, cached."""
    vocab_size: int | None = None
    """Pieces to train; null: model.vocab_size. Only for kind=sentencepiece without a path."""


@dataclass(kw_only=True)
class BlendPart:
    """One dataset of a blend."""

    weight: float
    """Its share of the samples, relative to the other weights; 0: none."""
    path: str
    """PREFIX of PREFIX.bin and PREFIX.idx."""


@dataclass(kw_only=True)
class DataConfig:
    """The training text."""

    name: str
    """Shown in the start-up table."""
    path: str | None = None
    """PREFIX of PREFIX.bin and PREFIX.idx, or a .txt file; null: the embedded text (tinyshakespeare)."""
    blend: list[BlendPart] | None = None
    """Several datasets in place of one path, each with the weight that decides its share of the samples."""
    split: list[float]
    """Relative sizes of train, validation and test, in text order (969,30,1 is common)."""
    shuffle_documents: bool = True
    """Pack the documents of a .bin/.idx dataset in a new order in every epoch; false: in the file's order."""
    reset_positions: bool = False
    """Count positions from 0 again where a document of a packed sample begins."""
    reset_attention: bool = False
    """Let no token of a packed sample attend to a document before its own."""
    cache_dir: str | None = None
    """Where trained tokenizers and encoded text are kept; null: $MLM_CACHE or ~/.cache/mlm."""


@dataclass(kw_only=True)
class OptimConfig:
    """AdamW, warm-up and decay (sections 4.2 and 4.3)."""

    name: str
    """Name of the recipe."""
    lr: float
    """Learning rate at the end of the warm-up."""
    min_lr: float
    """Learning rate of the last step."""
    warmup_steps: int
    """Steps of linear warm-up: step k (from 1) uses lr * k / warmup_steps (section 4.2: 3k of 300k)."""
    decay: Decay = Decay.cosine
    """cosine (GPT-2, section 4.2) or linear (BERT, section 4.3)."""
    decay_steps: int | None = None
    """Step at which the decay reaches min_lr; null: train.steps."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled; on matrices only, never on biases and LayerNorms (section 4.2)."""
    clip_grad_norm: float | None = 1.0
    """Global gradient norm above which gradients are scaled down (section 4.2); null: never."""


@dataclass(kw_only=True)
class PrecisionConfig:
    """Number formats."""

    name: str
    """fp32; bf16, fp16 (autocast over fp32 parameters); auto: bf16, else fp16 on accelerators; CPU fp32."""
    matmul: str = "auto"
    """Products of fp32 matrices: highest; medium; auto: on CPU medium if a probe finds it fp32-accurate."""


@dataclass(kw_only=True)
class TrainPrecisionConfig(PrecisionConfig):
    """Number formats of training, and the dynamic loss scale of fp16 (section 4.2)."""

    initial_loss_scale: float = 65536.0
    """fp16: what the loss is multiplied by at first, so that small gradients are not rounded to zero."""
    scale_growth_steps: int = 1000
    """fp16: the loss scale doubles after so many updates in a row; an overflow skips the step, halving it."""
    min_loss_scale: float = 1.0
    """fp16: the loss scale is never below; an overflow there counts as a bad step (train.max_bad_steps)."""


@dataclass(kw_only=True)
class ParallelConfig:
    """Switches of the parallel layers; the degrees are tp, pp and dp at the top level."""

    name: str
    """Name of the option."""
    overlap_grad_reduce: bool = True
    """Issue the all-reduce of a column layer's input gradient before its weight-gradient product."""
    ddp_bucket_mb: float = 25.0
    """Size of the buckets in which data parallelism reduces gradients, in MiB."""


@dataclass(kw_only=True)
class TrainLoopConfig:
    """Length of the run, batch, and how often it speaks."""

    steps: int = 300_000
    """Optimizer steps (section 4.2)."""
    global_batch_size: int = 512
    """Samples per step over all data-parallel ranks (section 4.2)."""
    micro_batch_size: int = 8
    """Samples per forward pass of one data-parallel rank."""
    log_interval: int = 10
    """Steps between lines of progress; the first and the last step are always logged."""
    eval_interval: int = 1000
    """Steps between validations; 0: none during training."""
    eval_samples: int | None = 512
    """Samples per validation during training; null: the whole validation split."""
    final_eval: bool = True
    """Validate on the whole validation split at the end."""
    final_eval_samples: int | None = None
    """Limit of the validation at the end, in samples; null: all."""
    save: bool = True
    """Write a checkpoint at the end."""
    max_hours: float | None = None
    """Hours from the command until the run saves and ends, to be resumed (exit code 75); null: no limit."""
    max_bad_steps: int = 0
    """Steps in a row whose loss or gradients are not finite that are skipped; one more ends the run."""
    sample_tokens: int = 64
    """Tokens of text to generate at the end; 0: none."""


@dataclass(kw_only=True)
class CheckpointConfig:
    """When checkpoints are written during a run, and which are kept."""

    interval: int = 0
    """Steps between checkpoints; 0: only at the end (train.save) and when the run is stopped in order."""
    keep_last: int = 2
    """Newest checkpoints to keep; older ones are deleted once a newer one is complete."""
    keep_every: int = 0
    """Keep for good the checkpoints whose step is a multiple of this; 0: none."""
    asynchronous: bool = True
    """Copy the state to memory and write it while training goes on (as much CPU memory as a rank's state)."""


@dataclass(kw_only=True)
class EvalDuringTrainingConfig:
    """Evaluation tasks on the model that is being trained, by the code of mlm-eval."""

    tasks: list[str] = field(default_factory=list)
    """Tasks to run every interval and after the last step; none by default."""
    task_paths: dict[str, str] = field(default_factory=dict)
    """Data file of a task, as in mlm-eval: eval.task_paths.wikitext103=FILE."""
    interval: int = 0
    """Steps between evaluations; 0: only after the last step."""
    limit: int | None = None
    """Only the first so many items or windows of each task, which the result says; null: all."""
    batch_tokens: int | None = None
    """Tokens of one forward pass of a data-parallel rank; null: 1,024 on CPU, 16,384 on accelerators."""


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


@dataclass(kw_only=True)
class LaunchConfig:
    """How worker processes come to be."""

    mode: str
    """auto, local, join, slurm, dry_run."""
    device: str = "auto"
    """cuda, cpu, or auto: cuda when this machine has devices and the installed torch can use them."""
    threads: int | None = None
    """CPU threads per worker; null: the cores shared out among the workers of this machine."""
    failure_grace_s: float = 10.0
    """Seconds from one worker's failure until the remaining workers are killed."""
    save_grace_s: float = 600.0
    """Seconds that a signal leaves to finish the step and save, until the workers are killed."""
    max_restarts: int = 0
    """How often a run whose worker died is started again from its newest checkpoint."""
    timeout_s: float = 1800.0
    """Seconds a collective may take before the run is ended."""
    devices_per_node: int | None = None
    """Under launch=slurm, the processes of one node; null: its GPUs, or the tasks of the allocation."""
    partition: str | None = None
    """Slurm partition to submit to; null: the cluster's default."""
    account: str | None = None
    """Slurm account that pays; null: yours by default."""
    time_limit: str | None = None
    """Limit of the Slurm job, as sbatch takes it: 24:00:00, 2-00:00:00 or minutes; null: the partition's."""
    sbatch_options: list[str] = field(default_factory=list)
    """Further options of sbatch, one an entry, as they are typed: --qos=high."""
    wait: bool = False
    """Wait for the submitted job and end with its exit code; otherwise submit and return."""


@dataclass(kw_only=True)
class LoggerConfig:
    """Where metrics go besides the console and metrics.jsonl."""

    kind: str
    """none, wandb or tensorboard."""
    project: str = "mlm"
    """Project name at wandb."""


@dataclass(kw_only=True)
class TrainConfig:
    """Everything mlm-train can be told."""

    model: ModelConfig
    tokenizer: TokenizerConfig
    data: DataConfig
    optim: OptimConfig
    precision: TrainPrecisionConfig
    parallel: ParallelConfig
    launch: LaunchConfig
    logger: LoggerConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainLoopConfig = field(default_factory=TrainLoopConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalDuringTrainingConfig = field(default_factory=EvalDuringTrainingConfig)
    tp: int = 1
    """Tensor-parallel degree: how many ranks share each layer (section 3)."""
    pp: int = 1
    """Pipeline-parallel degree; only 1 so far."""
    dp: int | None = None
    """Data-parallel degree; null: processes / (tp * pp), with 1 on a machine without accelerators."""
    seed: int = 1234
    """Seeds initial weights, data order and dropout."""
    deterministic: bool = False
    """Ask torch for deterministic kernels (bitwise repeatable on CUDA, slower)."""
    profile: bool = False
    """Record profile_steps with torch's profiler: a trace per rank and a table of time by kind."""
    profile_steps: list[int] | None = None
    """Steps to record, counted from 1, at most ten; null: the last three. Throughput leaves them out."""
    run_dir: str | None = None
    """Where the run writes; null: runs/<model>-<date>-<time>. An existing run's only with resume."""
    resume: str = "never"
    """never; auto: from run_dir's newest whole checkpoint; or a run or checkpoint directory to go on from."""
    init_from: str | None = None
    """Whose weights training starts from, at step 0: a run, one of its checkpoints/step_N, or a folder of
    Hugging Face's; null: random."""
    allow_pickle: bool = False
    """Let init_from read .bin and .pt files that could run code: only for files that you trust."""
    sweep_dir: str | None = None
    """With -m, where all runs go; null: runs/<study>, or runs/sweep-<hash> of what was typed."""


@dataclass(kw_only=True)
class EvalConfig:
    """Everything mlm-eval can be told."""

    precision: PrecisionConfig
    launch: LaunchConfig
    checkpoint: str | None = None
    """What is evaluated: a run's directory (its newest checkpoint) or one of its checkpoints/step_N."""
    tasks: list[str]
    """Names of tasks, in the order in which they run."""
    task_paths: dict[str, str] = field(default_factory=dict)
    """Data files by the names that --help lists: task_paths.wikitext103=FILE. Others are looked for."""
    tp: int = 1
    """Tensor-parallel degree, whatever the checkpoint was trained at."""
    dp: int | None = None
    """Ranks that share out the windows; null: as many as there are devices, 1 without accelerators."""
    batch_tokens: int | None = None
    """Tokens of one forward pass of a data-parallel rank; null: 1,024 on CPU, 16,384 on accelerators."""
    ensemble: list[str] = field(default_factory=list)
    """Further checkpoints fine-tuned to the same task, whose probabilities are averaged with the first's."""
    limit: int | None = None
    """Only the first so many items or windows of each task, which the result says; null: all."""
    out: str | None = None
    """Where eval.json goes; null: eval/<date>-<time> in the run's directory. Never an existing result's."""

    @property
    def pp(self) -> int:
        """Evaluation is not pipelined."""
        return 1


@dataclass(kw_only=True)
class GenerateConfig:
    """Everything mlm-generate can be told."""

    precision: PrecisionConfig
    launch: LaunchConfig
    checkpoint: str | None = None
    """What writes: a run's directory (its newest checkpoint) or one of its checkpoints/step_N."""
    prompt: str | None = field(default=None, metadata=VERBATIM)
    """The text to go on from, as it is typed; empty: a new document."""
    prompts: str | None = None
    """A file of prompts: one a line, or in a .jsonl file the key prompt or text of each line."""
    interactive: bool = False
    """Ask for prompts in the terminal, one after the other."""
    out: str | None = None
    """A file for the texts as JSON lines; null: standard output. Never an existing one."""
    max_new_tokens: int = 128
    """Tokens that a text may have after its prompt."""
    samples: int = 1
    """Texts per prompt."""
    temperature: float = 1.0
    """Divides the logits; 0: always the likeliest token."""
    top_k: int | None = None
    """Draw from the so many likeliest tokens only; null: from all."""
    top_p: float | None = None
    """Draw from the smallest set of likeliest tokens that has this probability; null: from all."""
    stop: list[str] = field(default_factory=list, metadata=VERBATIM)
    """Strings that end a text where they first appear in it, and are left out: stop=["\\n\\n","Q:"]."""
    slide: bool = False
    """Go on when the model's context is full, the oldest half of it out of sight; false: end there."""
    echo: bool = False
    """Print the prompt in front of its text."""
    seed: int = 1234
    """Decides, with the numbers of prompt and sample, what is drawn."""
    batch_size: int = 8
    """Texts in the making at once."""
    cache: bool = True
    """Keep keys and values of the tokens so far; false: compute them anew for each token, to compare."""
    tp: int = 1
    """Tensor-parallel degree, whatever the checkpoint was trained at."""

    @property
    def pp(self) -> int:
        """Generation is not pipelined."""
        return 1

    @property
    def dp(self) -> int:
        """All texts are made by one copy of the model."""
        return 1
