"""From logits to probabilities to decisions: calibrators, abstention rules and promises, label sets, scope, shift."""
