"""The steps of an epilogue: what becomes of f32 sums, by names."""

from __future__ import annotations

from collections.abc import Iterator

from fastmma.host.errors import OperandError

OUTPUTS = ("f32", "bf16", "f16")
ROUND = "round"
# what steps do; "x" is an f32 sum, which a step changes by one IEEE operation
MULTIPLIERS = {
    "scale_a": "scale_a",
    "scale_b": "scale_b",
    "scale_ab": "(scale_a * scale_b)",
    "alpha": "alpha",
}
ADDENDS = {"c": "c", "bias": "bias"}
ZERO = "0"  # what an fma may add in an addend's place: its zeros are positive
SCALED_C = "beta*c"
RELU, GELU = "relu", "gelu"
# t is `tanh.approx.f32`
ACTIVATIONS = {
    RELU: "max(x, 0)",
    GELU: "x / 2 * (t + 1), t = tanh(0.7978846 * x * fma(0.044715 * x, x, 1))",
    "gelu-fma": "fma(x, t, x) / 2, t = tanh(x * fma(0.035677426 * x, x, 0.7978846))",
}
BIASED_GELU = "gelu(x+bias)"  # without a rounding between them
_APPROXIMATED = "sm_90"  # targets of which all results of `tanh.approx.f32` are known


def operands_of(step: str) -> tuple[str, ...]:
    """The operands that a step takes.

    Examples
    --------
    >>> operands_of("alpha+bias"), operands_of("beta*c"), operands_of("alpha+0"), operands_of("relu")
    (('alpha', 'bias'), ('c',), ('alpha',), ())
    """
    if step == SCALED_C:
        return ("c",)
    if step == BIASED_GELU:
        return ("bias",)
    return () if step == ROUND or step in ACTIVATIONS else tuple(name for name in step.split("+") if name != ZERO)


def texts(steps: tuple[str, ...], out: str) -> Iterator[str]:
    """Return what each step does, for a plan."""
    rounded = ""
    for step in steps:
        factor, _, addend = step.partition("+")
        if step == ROUND:
            yield f"round to {out}"
            rounded = "" if out == "f32" else f", rounded to {out}"
        elif step == SCALED_C:
            yield f"fma(beta, c, x){rounded}"
        elif step in ACTIVATIONS:
            yield ACTIVATIONS[step]
        elif step == BIASED_GELU:
            yield f"gelu of x + bias, which is {ACTIVATIONS[GELU]}{rounded}"
        elif addend:
            yield f"fma(x, {MULTIPLIERS[factor]}, {ADDENDS.get(addend, addend)}){rounded}"
        else:
            yield (f"x * {MULTIPLIERS[step]}" if step in MULTIPLIERS else f"x + {ADDENDS[step]}") + rounded


def check_steps(steps: tuple[str, ...], target: str) -> None:
    """Raise OperandError unless these are steps of an epilogue in some order, each operand once, and one rounding, known of the target.

    Examples
    --------
    >>> check_steps(("alpha+bias", "beta*c", "relu", "round"), "sm_80")
    """
    if not isinstance(steps, tuple) or not all(isinstance(step, str) for step in steps):
        raise OperandError(f"an epilogue must be a tuple of names of steps, not {steps!r}")
    for step in steps:
        factor, plus, addend = step.partition("+")
        single = step in (ROUND, SCALED_C, BIASED_GELU) or step in MULTIPLIERS or step in ADDENDS or step in ACTIVATIONS
        if not (single or (plus and factor in MULTIPLIERS and (addend in ADDENDS or addend == ZERO))):
            known = ", ".join([*MULTIPLIERS, *ADDENDS, SCALED_C, *ACTIVATIONS, BIASED_GELU, ROUND])
            raise OperandError(
                f"a step of an epilogue is one of {known}, or a factor and an addend in one fma as 'alpha+bias', not {step!r}"
            )
    operands = [name for step in steps for name in operands_of(step)]
    if len(set(operands)) < len(operands) or steps.count(ROUND) != 1:
        raise OperandError(f"an epilogue has each operand at most once, and {ROUND!r} exactly once, unlike {steps}")
    approximated = [step for step in steps if step == BIASED_GELU or (step in ACTIVATIONS and step != RELU)]
    if approximated and not target.startswith(_APPROXIMATED):
        raise OperandError(f"{approximated[0]} takes tanh.approx.f32, of which {_APPROXIMATED} is known, not {target}")


def trimmed(steps: tuple[str, ...], given: set[str]) -> tuple[str, ...]:
    """The steps whose operands, or which themselves, are given; of an fma what is left of it.

    Examples
    --------
    >>> trimmed(("alpha+bias", "beta*c", "relu", "round"), {"bias", "relu"})
    ('bias', 'relu', 'round')
    """
    found = []
    for step in steps:
        if step in ACTIVATIONS:
            found += [step] if step in given else []
        elif step == BIASED_GELU:
            found += [] if GELU not in given else [step] if "bias" in given else [GELU]
        elif step in (ROUND, SCALED_C):
            found += [step] if set(operands_of(step)) <= given else []
        else:
            left = [name for name in operands_of(step) if name in given]
            found += ["+".join([*left, ZERO] if step.endswith(f"+{ZERO}") else left)] if left else []
    return tuple(found)


def with_activation(steps: tuple[str, ...], activation: str | None) -> tuple[str, ...]:
    """Steps with an activation before the last rounding, where they have none.

    Raises
    ------
    OperandError
        If there is no such activation.

    Examples
    --------
    >>> with_activation(("alpha", "round"), "relu")
    ('alpha', 'relu', 'round')
    """
    check_activation(activation)
    if activation is None or activation in steps or ROUND not in steps:
        return steps
    last = steps.index(ROUND)
    return (*steps[:last], activation, *steps[last:])


def check_activation(activation: str | None) -> None:
    """Raise OperandError unless this is None or the name of an activation."""
    if activation is not None and (not isinstance(activation, str) or activation not in ACTIVATIONS):
        raise OperandError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")


def joining(steps: tuple[str, ...], *, last: bool = False) -> tuple[str, ...]:
    """The steps by which a later part of k joins the result in memory, where the first one went through these: that is its c, and beta 1.

    An activation is left to the last part.

    Raises
    ------
    OperandError
        If parts cannot join so: there is a step after the rounding.

    Examples
    --------
    >>> joining(("alpha+bias", "round")), joining(("alpha", "beta*c", "round")), joining(("round",))
    (('alpha+c', 'round'), ('alpha', 'c', 'round'), ('c', 'round'))
    >>> joining(("alpha+bias", "relu", "round")), joining(("alpha+bias", "relu", "round"), last=True)
    (('alpha+c', 'round'), ('alpha+c', 'relu', 'round'))
    """
    if steps[-1:] != (ROUND,):
        raise OperandError(f"parts that are added in place take an epilogue that ends by rounding, unlike {steps}")
    if last:
        return with_activation(joining(steps), next((step for step in steps if step in ACTIVATIONS), None))
    if any(step in ("alpha+bias", "alpha+c") for step in steps):
        return ("alpha+c", ROUND)
    return (*(("alpha",) if "alpha" in steps else ()), "c", ROUND)
