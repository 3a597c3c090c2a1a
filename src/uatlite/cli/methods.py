"""uatlite methods"""

from rich import box
from rich.console import Console
from rich.table import Table


def methods() -> None:
    """List the methods, their settings, and the calibrators that can be stacked on them."""
    from uatlite.calibration import CALIBRATORS
    from uatlite.experiments.contenders import CALIBRATOR_ALIASES
    from uatlite.methods import METHOD_ALIASES, METHODS
    from uatlite.methods.settings import RATES, SCALARS

    console = Console()
    listed = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("method", "passes", "trained", "what it is"):
        listed.add_column(heading)
    for name, method in METHODS.items():
        aliases = [alias for alias, of in METHOD_ALIASES.items() if of == name]
        trained = "for it" if method.trained else ""
        listed.add_row(", ".join([name, *aliases]), str(method.passes), trained, method.summary)
    console.print(listed)
    short = {name: alias for alias, name in CALIBRATOR_ALIASES.items()}
    names = [f"{name} ({short[name]})" if name in short else name for name in CALIBRATORS if name != "none"]
    console.print(f"Settings, as in uat:gate=k,penalty=1.0: {', '.join((*SCALARS, *RATES))}.", highlight=False)
    console.print(
        "Methods trained 'for it' need a model of their own: uatlite train --method NAME --task TASK -o DIR, and DIR "
        "beside the plain model in uatlite evaluate.",
        highlight=False,
    )
    console.print(f"Calibrators, stacked as in uat+ts: {', '.join(names)}. Alone, as in ts, one stands on base.")
