"""``cometmq group``: its verbs, each loaded when it is called."""

from cometmq.cli.command import Example, LazyCommand, LazyGroup

_DELETING = "cometmq.cli.commands.group_deleting"
_LOOKING = "cometmq.cli.commands.group_looking"
_MOVING = "cometmq.cli.commands.group_moving"

command = LazyGroup(
    name="group",
    help="""Consumer groups: who is in them, how far they are.

    Works with clusters of CometMQ and of Apache RocketMQ.""",
    lazy={
        "ls": LazyCommand(_LOOKING, "List groups.", "ls_command"),
        "describe": LazyCommand(_LOOKING, "Everything about a group.", "describe_command"),
        "reset": LazyCommand(_MOVING, "Move a group to other offsets.", "reset_command"),
        "clone": LazyCommand(_MOVING, "Move a group to where another one is.", "clone_command"),
        "delete": LazyCommand(_DELETING, "Delete groups with their offsets.", "delete_command"),
        "lag": LazyCommand(_LOOKING, "How far groups are behind.", "lag_command"),
        "connections": LazyCommand(_LOOKING, "Who is connected.", "connections_command"),
    },
    examples=(Example("Who is behind?", "cometmq group lag", needs_cluster=True),),
)
