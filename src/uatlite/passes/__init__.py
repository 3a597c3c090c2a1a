"""From tokens to the logits of every pass: configuration, masks, gates, the forward, the engine, when to stop."""
