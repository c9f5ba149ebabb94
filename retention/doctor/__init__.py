"""Looking a machine, a warehouse and its streams over before something fails: findings, each with its remedy."""
