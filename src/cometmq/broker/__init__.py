"""The broker: takes messages, keeps them in a store, and hands them to consumers."""
