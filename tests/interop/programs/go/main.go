// Apache's Go client on a command line: a verb, then options; prints one JSON event per line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// A send that is tried again on a busy machine would be stored twice.
const sendTimeout = 20 * time.Second

type event map[string]any

var output sync.Mutex

func main() {
	rlog.SetLogLevel("error")
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: send|consume --namesrv ADDRESS --topic TOPIC …"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	namesrv := flags.String("namesrv", "", "name server, host:port")
	topic := flags.String("topic", "", "topic")
	group := flags.String("group", "", "producer or consumer group")
	count := flags.Int("count", 1, "how many messages")
	tag := flags.String("tag", "", "tag to send, or tag expression to subscribe to")
	prefix := flags.String("prefix", "", "bodies are the prefix and a number")
	timeout := flags.Int("timeout", 30, "seconds to wait for messages")
	trusted := flags.String("tls-trust", "", "speak TLS to a name server signed by this (PEM)")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	if *trusted != "" {
		through, err := tunnel(*namesrv, *trusted)
		if err != nil {
			fail(err)
		}
		*namesrv = through
	}
	var err error
	switch os.Args[1] {
	case "send":
		err = send(*namesrv, *group, *topic, *tag, *prefix, *count)
	case "consume":
		err = consume(*namesrv, *group, *topic, *tag, *count, time.Duration(*timeout)*time.Second)
	default:
		err = fmt.Errorf("no such verb: %s", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func send(namesrv, group, topic, tag, prefix string, count int) error {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName(group),
		producer.WithSendMsgTimeout(sendTimeout),
	)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		body := fmt.Sprintf("%s%d", prefix, i)
		message := primitive.NewMessage(topic, []byte(body))
		message.WithTag(tag).WithKeys([]string{fmt.Sprintf("key-%d", i)})
		result, err := p.SendSync(context.Background(), message)
		if err != nil {
			return err
		}
		emit(event{
			"event": "sent", "body": body, "status": int(result.Status), "messageId": result.MsgID,
			"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset,
		})
	}
	return p.Shutdown()
}

func consume(namesrv, group, topic, tag string, count int, timeout time.Duration) error {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	received := make(chan struct{}, count)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tag}
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			emitReceived(message)
			select {
			case received <- struct{}{}:
			default:
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(topic, selector, listener); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	deadline := time.After(timeout)
	for i := 0; i < count; i++ {
		select {
		case <-received:
		case <-deadline:
			return fmt.Errorf("%d of %d messages after %s", i, count, timeout)
		}
	}
	return c.Shutdown()
}

func emitReceived(message *primitive.MessageExt) {
	emit(event{
		"event": "received", "body": string(message.Body), "messageId": message.MsgId,
		"queueId": message.Queue.QueueId, "queueOffset": message.QueueOffset,
		"tags": message.GetTags(), "keys": message.GetKeys(),
	})
}

func emit(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		fail(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
