"""Where predictive variance comes from: layers, components, tokens, and what modulation does to attention."""
