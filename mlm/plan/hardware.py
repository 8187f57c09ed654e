"""Peak arithmetic rates by exact device name: the denominator of model FLOPs utilisation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Dense matrix products in TFLOP/s as the vendor states them; None: no such unit, or none stated."""

    fp32: float | None
    fp16: float
    bf16: float | None


# Dense rates without sparsity, fp16 and bf16 with fp32 accumulation, fp32 without tf32: training at
# "highest" uses no tf32. Sources: NVIDIA's datasheets of the named product unless a comment says otherwise.
# SXM, PCIe and NVL boards of one chip differ by up to a third, so only the exact name counts.
_V100_SXM2 = Peak(fp32=15.7, fp16=125.0, bf16=None)
_V100_PCIE = Peak(fp32=14.0, fp16=112.0, bf16=None)
_V100_DGX2H = Peak(fp32=None, fp16=130.0, bf16=None)
_A100 = Peak(fp32=19.5, fp16=312.0, bf16=312.0)
_H100_SXM = Peak(fp32=67.0, fp16=989.5, bf16=989.5)
_H_NVL = Peak(fp32=60.0, fp16=835.5, bf16=835.5)

PEAKS: dict[str, Peak] = {
    "Tesla V100-SXM2-16GB": _V100_SXM2,
    "Tesla V100-SXM2-32GB": _V100_SXM2,
    "Tesla V100-SXM3-32GB": _V100_SXM2,  # DGX-2: 2 PFLOP/s over 16
    "Tesla V100-SXM3-32GB-H": _V100_DGX2H,  # DGX-2H, the paper's machine: 130 TFLOP/s as configured
    "Tesla V100-PCIE-16GB": _V100_PCIE,
    "Tesla V100-PCIE-32GB": _V100_PCIE,
    "Tesla V100S-PCIE-32GB": Peak(fp32=16.4, fp16=130.0, bf16=None),
    "Tesla T4": Peak(fp32=8.1, fp16=65.0, bf16=None),
    # Older drivers leave out the vendor's name.
    "A100-SXM4-40GB": _A100,
    "A100-SXM4-80GB": _A100,
    "A100-PCIE-40GB": _A100,
    "NVIDIA A100-SXM4-40GB": _A100,
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-PCIE-40GB": _A100,
    "NVIDIA A100 80GB PCIe": _A100,
    "NVIDIA A30": Peak(fp32=10.3, fp16=165.0, bf16=165.0),
    "NVIDIA A40": Peak(fp32=37.4, fp16=149.7, bf16=149.7),
    "NVIDIA A10": Peak(fp32=31.2, fp16=125.0, bf16=125.0),
    "NVIDIA L4": Peak(fp32=30.3, fp16=121.0, bf16=121.0),  # half of the stated 242 with sparsity
    "NVIDIA L40": Peak(fp32=90.5, fp16=181.05, bf16=181.05),
    "NVIDIA L40S": Peak(fp32=91.6, fp16=362.05, bf16=362.05),
    "NVIDIA H100 80GB HBM3": _H100_SXM,  # half of the stated 1,979 with sparsity
    "NVIDIA H100 PCIe": Peak(fp32=51.0, fp16=756.5, bf16=756.5),  # half of 1,513
    "NVIDIA H100 NVL": _H_NVL,  # half of 1,671
    "NVIDIA H200": _H100_SXM,
    "NVIDIA H200 NVL": _H_NVL,
    # NVIDIA's Ada architecture paper, appendix: with fp32 accumulation, half of the fp16-accumulation rate.
    "NVIDIA GeForce RTX 4090": Peak(fp32=82.6, fp16=165.2, bf16=165.2),
}


def peak_tflops(device_name: str, dtype: str) -> float | None:
    """Peak TFLOP/s of one device for fp32, bf16 or fp16; None when the name is not known, never a guess.

    device_name is what NVML and torch.cuda.get_device_name report. A MIG slice, whose name carries its
    profile, is part of a chip and so unknown.
    """
    if dtype not in ("fp32", "fp16", "bf16"):
        raise ValueError(f"dtype={dtype} is not fp32, fp16 or bf16")
    peak = PEAKS.get(device_name)
    rate: float | None = None if peak is None else getattr(peak, dtype)
    return rate
