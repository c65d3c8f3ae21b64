"""What the broker does with requests, by family; each class lists its routes in ``add_to``."""
