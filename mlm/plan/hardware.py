"""Peak arithmetic rates by exact device name: the denominator of model FLOPs utilisation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Dense matrix products in TFLOP/s as the vendor states them; None: no such unit, or none stated."""

    fp32: float | None
    fp16: float
    bf16: float | None


# Dense rates: where a datasheet states products with sparsity only, half of that. fp16 and bf16 accumulate in
# fp32; fp32 is without tf32, which training at "highest" does not use. Sources: NVIDIA's datasheet of the
# named product unless a comment says otherwise. Keys are what the driver reports: SXM, PCIe and NVL boards of
# one chip differ by up to a third, so only the exact name counts. Names that stand for several boards, such
# as GeForce RTX 3080 with 10 and 12 GB, and products without a public datasheet are left out on purpose.
_V100_SXM2 = Peak(fp32=15.7, fp16=125.0, bf16=None)
_V100_PCIE = Peak(fp32=14.0, fp16=112.0, bf16=None)
_V100_DGX2H = Peak(fp32=None, fp16=130.0, bf16=None)
_A100 = Peak(fp32=19.5, fp16=312.0, bf16=312.0)
_H100_SXM = Peak(fp32=67.0, fp16=989.5, bf16=989.5)  # half of 1,979
_H_NVL = Peak(fp32=60.0, fp16=835.5, bf16=835.5)  # half of 1,671

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
    "NVIDIA L4": Peak(fp32=30.3, fp16=121.0, bf16=121.0),  # half of 242
    "NVIDIA L40": Peak(fp32=90.5, fp16=181.05, bf16=181.05),
    "NVIDIA L40S": Peak(fp32=91.6, fp16=362.05, bf16=362.05),
    "NVIDIA H100 80GB HBM3": _H100_SXM,
    "NVIDIA H100 PCIe": Peak(fp32=51.0, fp16=756.5, bf16=756.5),  # half of 1,513
    "NVIDIA H100 NVL": _H_NVL,
    "NVIDIA H200": _H100_SXM,
    "NVIDIA H200 NVL": _H_NVL,
    "NVIDIA GH200 480GB": _H100_SXM,
    "NVIDIA GH200 144G HBM3e": _H100_SXM,
    "NVIDIA B200": Peak(fp32=75.0, fp16=2250.0, bf16=2250.0),  # HGX B200: an eighth of 600, of 36,000 halved
    "NVIDIA GB200": Peak(fp32=80.0, fp16=2500.0, bf16=2500.0),  # NVL72: a 72nd of 5,760, of 360,000 halved
    # NVIDIA's GA102 and Ada architecture papers. Workstation boards accumulate in fp32 at full rate,
    "NVIDIA RTX A6000": Peak(fp32=38.7, fp16=154.8, bf16=154.8),
    "NVIDIA RTX 6000 Ada Generation": Peak(fp32=91.1, fp16=364.2, bf16=364.2),
    # GeForce boards at half of the advertised rate, which accumulates in fp16.
    "NVIDIA GeForce RTX 3090": Peak(fp32=35.6, fp16=71.0, bf16=71.0),
    "NVIDIA GeForce RTX 4090": Peak(fp32=82.6, fp16=165.2, bf16=165.2),
    "NVIDIA GeForce RTX 5090": Peak(fp32=104.8, fp16=209.5, bf16=209.5),  # RTX Blackwell architecture paper
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
