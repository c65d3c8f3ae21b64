"""``cometmq topic``: its verbs, each loaded when it is called."""

from cometmq.cli.command import Example, LazyCommand, LazyGroup

_LOOKING = "cometmq.cli.commands.topic_looking"
_CHANGING = "cometmq.cli.commands.topic_changing"
_DELETING = "cometmq.cli.commands.topic_deleting"
_READING = "cometmq.cli.commands.topic_reading"

command = LazyGroup(
    name="topic",
    help="""Topics: list, make, change them, look into them.

    Works with clusters of CometMQ and of Apache RocketMQ.""",
    lazy={
        "ls": LazyCommand(_LOOKING, "List topics.", "ls_command"),
        "create": LazyCommand(_CHANGING, "Make topics.", "create_command"),
        "describe": LazyCommand(_LOOKING, "Everything about a topic.", "describe_command"),
        "edit": LazyCommand(_CHANGING, "Change settings of a topic.", "edit_command"),
        "delete": LazyCommand(_DELETING, "Delete topics with their messages.", "delete_command"),
        "tail": LazyCommand(_READING, "Follow what arrives in a topic.", "tail_command"),
        "peek": LazyCommand(_READING, "A few messages of a topic.", "peek_command"),
        "stats": LazyCommand(_LOOKING, "How full and how busy topics are.", "stats_command"),
    },
    examples=(Example("Which topics are there?", "cometmq topic ls", needs_cluster=True),),
)
