"""What a run may get Spark by: a name or a URL, as settings and declarations give it."""

REMEDY = "use warm, local, or a master URL such as spark://host:7077"


def is_driver(value: object) -> bool:
    """Whether it is one of these."""
    return isinstance(value, str) and (
        value in ("warm", "local") or value.startswith(("spark://", "yarn", "k8s://", "local["))
    )
