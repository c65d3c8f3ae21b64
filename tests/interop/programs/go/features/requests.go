package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	requestTimeout = 20 * time.Second
	// A broker knows a producer, and so whom to hand a reply to, from its first heartbeat. That one
	// comes a second after the start, to brokers that the client knows by then.
	heartbeatPause = 2 * time.Second
	anyTopic       = "BenchmarkTest"
)

// requestTable has both ends of request and reply: a producer that waits for replies, and
// consumers that give them.
type requestTable struct {
	started map[string]rocketmq.Producer
}

func newRequests() *requestTable {
	return &requestTable{started: map[string]rocketmq.Producer{}}
}

// send sends requests and tells the reply to each.
func (t *requestTable) send(id int, given options) error {
	p, err := t.producer(given.Namesrv, "asking")
	if err != nil {
		return err
	}
	answered := make(chan struct{}, len(given.Bodies))
	// The client may call back more than once for one request.
	first := make([]sync.Once, len(given.Bodies))
	tell := func(index int, reply *primitive.Message, err error) {
		first[index].Do(func() {
			if err != nil {
				emit(id, event{"event": "refused", "index": index, "error": err.Error()})
			} else {
				properties := reply.GetProperties()
				emit(id, event{
					"event": "replied", "index": index, "body": string(reply.Body), "properties": properties,
				})
			}
			answered <- struct{}{}
		})
	}
	for index, body := range given.Bodies {
		index, request := index, primitive.NewMessage(given.Topic, []byte(body))
		switch given.Mode {
		case "sync":
			reply, err := p.Request(context.Background(), requestTimeout, request)
			tell(index, reply, err)
		case "async":
			callback := func(_ context.Context, reply *primitive.Message, err error) {
				tell(index, reply, err)
			}
			if err := p.RequestAsync(context.Background(), requestTimeout, callback, request); err != nil {
				return err
			}
		default:
			return fmt.Errorf("no such mode: %s", given.Mode)
		}
	}
	deadline := time.After(2 * requestTimeout)
	for range given.Bodies {
		select {
		case <-answered:
		case <-deadline:
			return errors.New("not every callback came")
		}
	}
	return nil
}

// answer starts a consumer that replies to every message with its body in capitals.
func (t *requestTable) answer(id int, given options) error {
	p, err := t.producer(given.Namesrv, "answering")
	if err != nil {
		return err
	}
	handle := func(
		ctx context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, request := range messages {
			text := strings.ToUpper(string(request.Body))
			reply, err := consumer.CreateReplyMessage(request, []byte(text))
			if err == nil {
				// The client takes the body for properties.
				reply.Body = []byte(text)
				_, err = p.SendSync(ctx, reply)
			}
			if err != nil {
				emit(id, event{"event": "refused", "index": 0, "error": err.Error()})
			} else {
				emit(id, event{"event": "answered", "status": "SEND_OK", "body": text})
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	started, err := startPush(given, handle)
	if err != nil {
		return err
	}
	consumers.started[given.Name] = started
	return nil
}

func (t *requestTable) producer(namesrv, name string) (rocketmq.Producer, error) {
	key := namesrv + " " + name
	if p, isStarted := t.started[key]; isStarted {
		return p, nil
	}
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName("PG_"+name),
		producer.WithInstanceName(name),
	)
	if err != nil {
		return nil, err
	}
	t.started[key] = p
	if err := p.Start(); err != nil {
		return nil, err
	}
	if _, err := p.SendSync(context.Background(), primitive.NewMessage(anyTopic, []byte("hello"))); err != nil {
		return nil, err
	}
	time.Sleep(heartbeatPause)
	return p, nil
}
