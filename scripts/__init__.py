"""Programs for working on CometMQ; none of them is installed."""
