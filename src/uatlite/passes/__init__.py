"""Tokens to logits of every pass: rates, masks, token uncertainty, gates, the engine."""
