pytest_plugins = ["cometmq.testing.pytest_plugin"]
