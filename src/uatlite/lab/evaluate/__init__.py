"""From a checkpoint and a task to scores: the store of predictions, the runner, the evaluation of what is stored."""

COMPARED = "base,ts,mc-component,uat,uat+ts,distilled+its"
"""The methods that are compared by default; mc-component has the rates of uat, so the two differ by the gate alone."""
