"""Machines and configurations that tests of the launch share; nothing here looks at the real machine."""

from __future__ import annotations

from typing import Any

from mlm.config.schema import (
    DataConfig,
    LaunchConfig,
    LoggerConfig,
    ModelConfig,
    OptimConfig,
    ParallelConfig,
    TokenizerConfig,
    TrainConfig,
    TrainPrecisionConfig,
)
from mlm.launch.machine import Machine
from mlm.launch.nvml import Accelerator

GIB = 1 << 30

LAPTOP = Machine(cores=2, memory_bytes=16 * GIB, torch_version="2.13.0+cpu", host="laptop")


def gpu_machine(
    count: int, *, gib: int = 80, capability: tuple[int, int] = (9, 0), cuda: str | None = "12.8"
) -> Machine:
    device = Accelerator("NVIDIA H100 80GB HBM3", gib * GIB, compute_capability=capability)
    return Machine(
        cores=64,
        memory_bytes=512 * GIB,
        accelerators=(device,) * count,
        torch_version="2.13",
        torch_cuda=cuda,
    )


def model(**fields: Any) -> ModelConfig:
    tiny: dict[str, Any] = {
        "name": "tiny",
        "num_layers": 2,
        "hidden_size": 64,
        "num_heads": 8,
        "seq_length": 64,
        "vocab_size": 257,
        "padded_vocab_size": 264,
    }
    return ModelConfig(**(tiny | fields))


def gpt2_8b() -> ModelConfig:
    """The paper's 8.3B: one of 8 ranks holds 1,043,549,184 parameters, 16 bytes each for good."""
    return model(
        name="gpt2_8b",
        num_layers=72,
        hidden_size=3072,
        num_heads=24,
        seq_length=1024,
        vocab_size=50257,
        padded_vocab_size=51200,
    )


def config(
    *,
    tp: int = 1,
    dp: int | None = None,
    mode: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    logger: str = "none",
    threads: int | None = None,
    run_dir: str | None = None,
    of_model: ModelConfig | None = None,
) -> TrainConfig:
    return TrainConfig(
        model=of_model or model(),
        tokenizer=TokenizerConfig(kind="byte"),
        data=DataConfig(name="shakespeare", split=[90, 10, 0]),
        optim=OptimConfig(name="adamw", lr=1e-3, min_lr=1e-4, warmup_steps=1),
        precision=TrainPrecisionConfig(name=precision),
        parallel=ParallelConfig(name="default"),
        launch=LaunchConfig(mode=mode, device=device, threads=threads),
        logger=LoggerConfig(kind=logger),
        tp=tp,
        dp=dp,
        run_dir=run_dir,
    )
