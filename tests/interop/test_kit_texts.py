"""Small pure parts of the kit: what is kept of other programs' output, and what they are told."""

from tests.interop import maven, vectors
from tests.interop.clients import events_in
from tests.interop.commands import without_noise


def test_only_events_are_taken_from_what_a_client_prints() -> None:
    output = 'INFO starting\n{"event": "sent", "body": "a"}\n\n{"event": "received"}\nbye\n'

    assert events_in(output) == [{"event": "sent", "body": "a"}, {"event": "received"}]


def test_the_tools_logging_is_not_its_answer() -> None:
    output = (
        "00:05:12,251 |-INFO in org.apache.rocketmq.logging - configured\n"
        "#Cluster Name     #Broker Name\n"
        "DefaultCluster    broker-a\n"
    )

    assert without_noise(output) == "#Cluster Name     #Broker Name\nDefaultCluster    broker-a"


def test_a_pom_names_every_artifact_with_its_version() -> None:
    pom = maven.pom_of(("rocketmq-client:4.9.8", "rocketmq-acl:4.9.8"))

    assert pom.count("<dependency>") == 2
    assert "<artifactId>rocketmq-acl</artifactId>\n      <version>4.9.8</version>" in pom


def test_an_artifact_is_of_rocketmqs_group_unless_it_names_another() -> None:
    pom = maven.pom_of(("rocketmq-client:4.9.8", "org.apache.kafka:kafka_2.13:4.1.0"))

    assert "<groupId>org.apache.rocketmq</groupId>\n      <artifactId>rocketmq-client<" in pom
    assert "<groupId>org.apache.kafka</groupId>\n      <artifactId>kafka_2.13<" in pom
    assert "exclusion" not in pom


def test_an_artifact_that_comes_alone_brings_nothing_it_depends_on() -> None:
    pom = maven.pom_of(("org.apache.commons:commons-pool2:2.12.1:alone",))

    assert "<version>2.12.1</version>\n      <exclusions>" in pom
    assert "<artifactId>*</artifactId>" in pom


def test_vectors_that_releases_agree_on_stand_once() -> None:
    old = [{"name": "a", "value": 1}, {"name": "b", "value": 1}]
    new = [{"name": "a", "value": 1}, {"name": "a2", "value": 1}, {"name": "b", "value": 2}]

    assert vectors.merged([old, new]) == [
        {"releases": ["4.9.7", "5.5.0"], "name": "a", "value": 1},
        {"releases": ["5.5.0"], "name": "a2", "value": 1},
        {"releases": ["5.5.0"], "name": "b", "value": 2},
        {"releases": ["4.9.7"], "name": "b", "value": 1},
    ]
